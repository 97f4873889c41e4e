/*
 * Transcripts of execs: the format's vectors (docs/adr/0080, from
 * tests/vectors/transcript.py), the rules of offsets, and every way in which
 * a file may be short, damaged, or refuse to grow.
 */
#include "store/transcript.h"

#include <signal.h>
#include <sys/resource.h>

#include "store/crypt.h"

#include "tests/fds.h"
#include "tests/tap.h"

#define TAG "t0123456789abcdefghi"

static const uint8_t key[32] = {
	0x08, 0x02, 0x9c, 0x42, 0x33, 0x5e, 0xbb, 0xd8, 0x84, 0x27, 0xc6,
	0xb6, 0x93, 0x7b, 0x79, 0xf1, 0x27, 0x61, 0x68, 0xb7, 0xd8, 0x67,
	0xef, 0xe7, 0x47, 0x61, 0x4f, 0xed, 0x15, 0x07, 0x4e, 0x96,
};

static const char vector[] =
	/* header */
	"4352595401000000030000007430313233343536373839616263646566676869"
	"e80300000000000014000000000000000000000000000000000000009daf2129"
	/* record 1 */
	"0100000001000000e8030000000000000d000000e1fd0f841168431dc9942683"
	"dd9a83a6284ea95a02ef3ad5dedf9decd8bf09ffb5"
	/* record 2 */
	"0200000002000000140000000000000004000000696d7a94b36a0a9c6fd35b48"
	"f9ae3266013b965a117f7db9";

/* record 4: number 3 was used up by a write that failed */
static const char vector4[] =
	"0400000001000000f503000000000000010000002f0dd880dc88d460ed63e58c"
	"9c8d4a8401a28b20b2";

static size_t unhex(const char *hex, uint8_t *ret)
{
	size_t n = strlen(hex) / 2;

	for (size_t i = 0; i < n; i++) {
		unsigned v;

		sscanf(hex + 2 * i, "%2x", &v);
		ret[i] = (uint8_t)v;
	}
	return n;
}

static int file(void)
{
	int fd = fds_memfd(0, 0);

	fcntl(fd, F_SETFL, O_APPEND);
	return fd;
}

static struct transcript *writer(int fd, uint64_t out_from, uint64_t err_from)
{
	struct transcript_info info = {
		.tag = TAG, .epoch = 3, .out_from = out_from, .err_from = err_from
	};
	struct transcript *t;
	struct err e;

	if (transcript_create(&t, dup(fd), key, &info, &e) < 0)
		bail("%s", e.msg);
	return t;
}

static struct transcript_reader *reader(int fd)
{
	struct transcript_reader *r;
	struct err e;

	if (transcript_reader_open(&r, dup(fd), key, &e) < 0)
		bail("%s", e.msg);
	return r;
}

static size_t file_len(int fd)
{
	struct stat st;

	fstat(fd, &st);
	return (size_t)st.st_size;
}

/* --- the format ---------------------------------------------------------- */

static void test_vectors(void)
{
	uint8_t want[256], got[256];
	size_t len = unhex(vector, want);
	struct transcript_piece p;
	struct transcript_reader *r;
	struct transcript *t;
	struct rlimit old, tight;
	int fd = file(), r1;
	struct err e;

	t = writer(fd, 1000, 20);
	is_int(transcript_append(t, TRANSCRIPT_OUT, 1000, "hello, world\n", 13),
	       0, "output is appended");
	is_int(transcript_append(t, TRANSCRIPT_ERR, 20, "oops", 4), 0,
	       "to either stream");
	is_int(pread(fd, got, sizeof(got), 0), (long long)len,
	       "the file has the length of the document's");
	is_mem(got, want, len, "and its bytes");

	r = reader(fd);
	ok(!strcmp(transcript_reader_info(r)->tag, TAG) &&
		   transcript_reader_info(r)->epoch == 3 &&
		   transcript_reader_info(r)->out_from == 1000 &&
		   transcript_reader_info(r)->err_from == 20,
	   "a reader learns whose it is");
	ok(transcript_reader_next(r, &p, &e) == 0 &&
		   p.stream == TRANSCRIPT_OUT && p.offset == 1000 &&
		   p.len == 13 && !memcmp(p.p, "hello, world\n", 13),
	   "reads the first record");
	ok(transcript_reader_next(r, &p, &e) == 0 && p.stream == TRANSCRIPT_ERR &&
		   p.offset == 20 && p.len == 4 && !memcmp(p.p, "oops", 4),
	   "the second");
	is_int(transcript_reader_next(r, &p, &e), 1, "and comes to the end");

	/* a write that fails in its middle */
	getrlimit(RLIMIT_FSIZE, &old);
	tight = old;
	tight.rlim_cur = len + 30;
	setrlimit(RLIMIT_FSIZE, &tight);
	r1 = transcript_append(t, TRANSCRIPT_OUT, 1013, "y", 1);
	setrlimit(RLIMIT_FSIZE, &old); /* it is for our output, too */
	ok(r1 < 0, "a write that does not fit fails");
	is_int((long long)file_len(fd), (long long)len, "and leaves nothing");
	is_int((long long)transcript_end(t, TRANSCRIPT_OUT), 1013,
	       "nor a hole in the stream");
	is_int(transcript_append(t, TRANSCRIPT_OUT, 1013, "", 1), 0,
	       "the next one fits");
	is_int(pread(fd, got, sizeof(got), (off_t)len),
	       (long long)unhex(vector4, want), "and is a record");
	is_mem(got, want, unhex(vector4, want),
	       "under a number that no other bytes were sealed with");
	ok(transcript_reader_next(r, &p, &e) == 0 && p.offset == 1013,
	   "the reader that stood at the end goes on");
	is_int(transcript_sync(t), 0, "it can be synced");
	transcript_free(t);
	transcript_reader_free(r);
	close(fd);
}

/* --- writing ------------------------------------------------------------- */

static void test_offsets(void)
{
	struct transcript *t;
	int fd = file();
	size_t len;

	t = writer(fd, 100, 0);
	is_int(transcript_append(t, TRANSCRIPT_OUT, 101, "x", 1), -EINVAL,
	       "a hole is refused");
	is_int(transcript_append(t, TRANSCRIPT_OUT, UINT64_MAX, "xx", 2),
	       -EINVAL, "so is what goes round the end of numbers");
	is_int(transcript_append(t, TRANSCRIPT_OUT, 100, "abcd", 4), 0, "0..4");
	len = file_len(fd);
	is_int(transcript_append(t, TRANSCRIPT_OUT, 100, "abcd", 4), 0, "again");
	is_int(transcript_append(t, TRANSCRIPT_OUT, 0, "zz", 2), 0, "and older");
	is_int((long long)file_len(fd), (long long)len, "which changes nothing");
	is_int(transcript_append(t, TRANSCRIPT_OUT, 102, "cdef", 4), 0,
	       "of what overlaps");
	is_int((long long)transcript_end(t, TRANSCRIPT_OUT), 106,
	       "the new part is kept");
	is_int((long long)file_len(fd), (long long)len + 24 + 2 + 16,
	       "and nothing else");
	is_int((long long)transcript_end(t, TRANSCRIPT_ERR), 0,
	       "the other stream has its own end");
	is_int(transcript_append(t, TRANSCRIPT_ERR, 0, NULL, 0), 0,
	       "nothing is fine too");
	transcript_free(t);
	close(fd);
}

static void test_limit(void)
{
	static uint8_t chunk[1 << 20];
	struct transcript *t;
	int fd = file(), r = 0;
	uint64_t at = 0;
	size_t len;

	t = writer(fd, 0, 0);
	while (r == 0 && at < TRANSCRIPT_LIMIT) {
		r = transcript_append(t, TRANSCRIPT_OUT, at, chunk,
				      sizeof(chunk));
		at += sizeof(chunk);
	}
	ok(r == 0 && at == TRANSCRIPT_LIMIT, "64 MiB are kept");
	len = file_len(fd);
	is_int(transcript_append(t, TRANSCRIPT_OUT, at, "xyz", 3), 1,
	       "one byte more is not");
	is_int((long long)transcript_end(t, TRANSCRIPT_OUT), (long long)at + 3,
	       "but counted, so that the guest goes on");
	is_int(transcript_append(t, TRANSCRIPT_ERR, 0, chunk, 10), 1,
	       "of either stream");
	is_int(transcript_append(t, TRANSCRIPT_OUT, at + 4, "x", 1), -EINVAL,
	       "a hole stays a hole");
	is_int((long long)file_len(fd), (long long)len, "nothing was written");
	transcript_free(t);
	close(fd);
}

/* A tail of a failed write that can't be cut off: nothing may follow it. */
static void test_torn_for_good(void)
{
	struct rlimit old, tight;
	struct transcript *t;
	struct transcript_reader *r;
	struct transcript_piece p;
	int fd = file(), got;
	struct err e;
	size_t len;

	t = writer(fd, 0, 0);
	transcript_append(t, TRANSCRIPT_OUT, 0, "first", 5);
	fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK);
	getrlimit(RLIMIT_FSIZE, &old);
	tight = old;
	tight.rlim_cur = file_len(fd) + 30;
	setrlimit(RLIMIT_FSIZE, &tight);
	got = transcript_append(t, TRANSCRIPT_OUT, 5, "second", 6);
	setrlimit(RLIMIT_FSIZE, &old);
	ok(got < 0, "a write fails and its bytes can't be cut off");
	len = file_len(fd);
	ok(transcript_append(t, TRANSCRIPT_OUT, 5, "second", 6) < 0 &&
		   file_len(fd) == len,
	   "then nothing is appended behind them");
	r = reader(fd);
	got = transcript_reader_next(r, &p, &e);
	ok(got == 0 && p.len == 5, "what came before can be read");
	is_int(transcript_reader_next(r, &p, &e), 1, "and is the end");
	transcript_reader_free(r);
	transcript_free(t);
	close(fd);
}

/* --- reading ------------------------------------------------------------- */

static void test_no_header(void)
{
	struct transcript_reader *r;
	int fd = file(), before = fds_count();
	uint8_t bytes[256], other[32] = { 1 };
	struct transcript_piece p;
	struct err e;
	int wrong = 0;

	unhex(vector, bytes);
	for (size_t i = 0; i < TRANSCRIPT_HEADER_LEN; i++) {
		wrong += transcript_reader_open(&r, dup(fd), key, &e) != -ENODATA;
		if (write(fd, bytes + i, 1) != 1)
			bail("write");
	}
	is_int(wrong, 0, "a file that has no header yet says so");
	wrong = 0;
	for (size_t i = 0; i < TRANSCRIPT_HEADER_LEN; i++) {
		bytes[i] ^= 0x40;
		if (ftruncate(fd, 0) ||
		    write(fd, bytes, TRANSCRIPT_HEADER_LEN) < 0)
			bail("write");
		wrong += transcript_reader_open(&r, dup(fd), key, &e) != -EBADMSG;
		bytes[i] ^= 0x40;
	}
	is_int(wrong, 0, "a flipped bit anywhere in it is found");
	/* a header that somebody with the file made up, checksum and all */
	memcpy(bytes + 12, "\n\"evil\"\n            ", 20);
	put_u32(bytes + 60, crypt_crc32c(bytes, 60));
	if (ftruncate(fd, 0) || write(fd, bytes, TRANSCRIPT_HEADER_LEN) < 0)
		bail("write");
	is_int(transcript_reader_open(&r, dup(fd), key, &e), -EBADMSG,
	       "a tag that is no id is refused");
	unhex(vector, bytes);
	if (ftruncate(fd, 0) || write(fd, bytes, sizeof(vector) / 2) < 0)
		bail("write");
	is_int(transcript_reader_open(&r, dup(fd), other, &e), 0,
	       "another key opens the file");
	is_int(transcript_reader_next(r, &p, &e), -EBADMSG, "but no record");
	ok(strstr(e.msg, TAG) && strstr(e.msg, "byte 64"),
	   "the error says where: %s", e.msg);
	transcript_reader_free(r);
	is_int(fds_count(), before, "no descriptor is left");
	close(fd);
}

/* How many records can be read, and how it ends. */
static int read_all(int fd, int *ret_end)
{
	struct transcript_reader *r = reader(fd);
	struct transcript_piece p;
	struct err e;
	int n = 0, end;

	while ((end = transcript_reader_next(r, &p, &e)) == 0)
		n++;
	transcript_reader_free(r);
	*ret_end = end;
	return n;
}

static void test_torn(void)
{
	uint8_t bytes[256];
	size_t len = unhex(vector, bytes), first = 64 + 24 + 13 + 16;
	int fd = file(), wrong = 0, end;

	if (write(fd, bytes, len) < 0)
		bail("write");
	for (size_t n = len; n >= TRANSCRIPT_HEADER_LEN; n--) {
		int want = n == len ? 2 : n >= first ? 1 : 0;

		if (ftruncate(fd, (off_t)n) < 0)
			bail("truncate");
		wrong += read_all(fd, &end) != want || end != 1;
	}
	is_int(wrong, 0, "a torn tail is the end, wherever it is torn");
	close(fd);
}

static void test_flipped(void)
{
	uint8_t bytes[256], bad[256];
	size_t len = unhex(vector, bytes), first = 64 + 24 + 13 + 16;
	int fd = file(), wrong = 0, end;

	for (size_t at = TRANSCRIPT_HEADER_LEN; at < len; at++) {
		for (int bit = 0; bit < 8; bit++) {
			memcpy(bad, bytes, len);
			bad[at] ^= (uint8_t)(1 << bit);
			if (ftruncate(fd, 0) || write(fd, bad, len) < 0)
				bail("write");
			wrong += read_all(fd, &end) != (at >= first) ||
				 end != -EBADMSG;
		}
	}
	is_int(wrong, 0, "a flipped bit in a record is found");
	close(fd);
}

/* A record as somebody who has the key could write it. */
static void forge(int fd, uint32_t number, uint8_t stream, uint64_t offset,
		  uint32_t len)
{
	static uint8_t plain[TRANSCRIPT_RECORD_MAX + 1];
	static uint8_t sealed[sizeof(plain)];
	uint8_t h[24] = { 0 }, ad[88], nonce[12] = { 0 }, tag[16];
	struct crypt_aead *a = crypt_aead_new(key);
	size_t real = MIN(len, sizeof(plain));

	put_u32(h, number);
	h[4] = stream;
	put_u64(h + 8, offset);
	put_u32(h + 16, len);
	put_u32(h + 20, crypt_crc32c(h, 20));
	if (pread(fd, ad, 64, 0) != 64)
		bail("read");
	memcpy(ad + 64, h, 24);
	put_u64(nonce, number);
	crypt_aead_seal(a, nonce, ad, sizeof(ad), plain, real, sealed, tag);
	crypt_aead_free(a);
	if (write(fd, h, 24) < 0 || write(fd, sealed, real) < 0 ||
	    write(fd, tag, 16) < 0)
		bail("write");
}

static void test_forged(void)
{
	static const struct {
		const char *what;
		uint32_t number;
		uint8_t stream;
		uint64_t offset;
		uint32_t len;
	} bad[] = {
		{ "an old number", 4, 1, 1014, 1 },
		{ "number 0", 0, 1, 1014, 1 },
		{ "no stream", 5, 0, 1014, 1 },
		{ "a third stream", 5, 3, 1014, 1 },
		{ "nothing in it", 5, 1, 1014, 0 },
		{ "more than a record holds", 5, 1, 1014,
		  TRANSCRIPT_RECORD_MAX + 1 },
		{ "a length that goes round", 5, 1, 1014, UINT32_MAX },
		{ "a hole before it", 5, 1, 1015, 1 },
		{ "bytes that were there", 5, 1, 1013, 1 },
		{ "an offset at the end of numbers", 5, 2, UINT64_MAX, 1 },
	};
	uint8_t bytes[256];
	size_t len = unhex(vector, bytes);
	int end;

	len += unhex(vector4, bytes + len);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		int fd = file();

		if (write(fd, bytes, len) < 0)
			bail("write");
		forge(fd, bad[i].number, bad[i].stream, bad[i].offset,
		      bad[i].len);
		is_int(read_all(fd, &end) * 1000 - end, 3000 + EBADMSG,
		       "refused: %s", bad[i].what);
		close(fd);
	}
}

/* What is written in any pieces, with repetitions, is read as it was. */
static void test_law(void)
{
	static uint8_t streams[3][200000], back[3][200000];
	uint64_t seed = tap_seed(), end[3] = { 0, 7, 9 }, at[3] = { 0, 7, 9 };
	struct transcript_reader *r;
	struct transcript_piece p;
	struct transcript *t;
	int fd = file(), rc = 0;
	struct err e;

	for (size_t i = 0; i < sizeof(streams[1]); i++) {
		streams[1][i] = (uint8_t)tap_rand(&seed);
		streams[2][i] = (uint8_t)tap_rand(&seed);
	}
	t = writer(fd, 7, 9);
	r = reader(fd);
	for (int i = 0; i < 400; i++) {
		enum transcript_stream s = 1 + tap_rand(&seed) % 2;
		uint64_t back_by = tap_rand(&seed) % 50;
		uint64_t from = end[s] > back_by ? end[s] - back_by : 0;
		size_t n = tap_rand(&seed) % (i % 20 ? 900 : 70000);

		n = MIN(n, sizeof(streams[s]) - from);
		rc |= transcript_append(t, s, from, streams[s] + from, n);
		end[s] = MAX(end[s], from + n);
		/* a reader that follows sees it in any portions */
		while (tap_rand(&seed) % 4 &&
		       transcript_reader_next(r, &p, &e) == 0) {
			rc |= p.offset != at[p.stream];
			memcpy(back[p.stream] + p.offset, p.p, p.len);
			at[p.stream] += p.len;
		}
	}
	while (transcript_reader_next(r, &p, &e) == 0) {
		rc |= p.offset != at[p.stream];
		memcpy(back[p.stream] + p.offset, p.p, p.len);
		at[p.stream] += p.len;
	}
	ok(rc == 0 && at[1] == end[1] && at[2] == end[2],
	   "all of it comes back, in order");
	is_mem(back[1] + 7, streams[1] + 7, end[1] - 7, "with the same bytes");
	is_mem(back[2] + 9, streams[2] + 9, end[2] - 9, "in both streams");
	transcript_free(t);
	transcript_reader_free(r);
	close(fd);
}

static void test_create_fails(void)
{
	struct transcript_info info = { .tag = TAG };
	int before = fds_count();
	struct transcript *t;
	struct err e;

	is_int(transcript_create(&t, open("/dev/full", O_WRONLY | O_CLOEXEC),
				 key, &info, &e),
	       -ENOSPC, "no space for the header");
	ok(strstr(e.msg, TAG), "says for which exec: %s", e.msg);
	is_int(fds_count(), before, "and closes the file");
}

int main(void)
{
	int before = fds_count();

	signal(SIGXFSZ, SIG_IGN);
	test_vectors();
	test_offsets();
	test_limit();
	test_torn_for_good();
	test_no_header();
	test_torn();
	test_flipped();
	test_forged();
	test_law();
	test_create_fails();
	is_int(fds_count(), before, "every descriptor is closed in the end");
	return tap_done();
}
