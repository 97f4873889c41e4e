/*
 * Any bytes as a transcript. As they are, checksums and the cipher refuse
 * them; so each is also written as a header and records that are right in
 * form and sealed with the key: what a hostile cryo-vm, which has file and
 * key, could leave. A reader must come to an end and hand out only pieces
 * that follow each other.
 */
#include "store/transcript.h"

#include <sys/mman.h>

#include "store/crypt.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

static const uint8_t key[32] = { 1 };

static void read_all(int fd)
{
	struct transcript_reader *r;
	static volatile unsigned sum;
	struct transcript_piece p;
	uint64_t end[3];
	struct err e;
	int rc;

	if (transcript_reader_open(&r, dup(fd), key, &e) < 0)
		return;
	POST(id_valid(transcript_reader_info(r)->tag));
	end[TRANSCRIPT_OUT] = transcript_reader_info(r)->out_from;
	end[TRANSCRIPT_ERR] = transcript_reader_info(r)->err_from;
	while ((rc = transcript_reader_next(r, &p, &e)) == 0) {
		POST(p.len > 0 && p.len <= TRANSCRIPT_RECORD_MAX);
		POST(p.offset == end[p.stream]);
		POST(p.offset + p.len > p.offset);
		end[p.stream] += p.len;
		for (size_t i = 0; i < p.len; i++)
			sum += p.p[i]; /* readable to its end */
	}
	POST(rc == 1 || rc == -EBADMSG);
	transcript_reader_free(r);
}

/* 24 bytes of the input as a record's header, then what it claims, sealed. */
static size_t put_record(int fd, const uint8_t header[64], const uint8_t *p,
			 size_t left)
{
	static uint8_t plain[TRANSCRIPT_RECORD_MAX], sealed[sizeof(plain)];
	uint8_t h[24], ad[88], nonce[CRYPT_NONCE_LEN] = { 0 }, tag[16];
	struct crypt_aead *a;
	uint32_t n;

	if (left < sizeof(h))
		return left;
	memcpy(h, p, sizeof(h));
	h[4] = h[4] % 4; /* stream */
	h[5] &= h[6]; /* flags, mostly none */
	put_u16(h + 6, 0);
	n = get_u32(h + 16) % (2 * sizeof(plain));
	put_u32(h + 16, n);
	put_u32(h + 20, crypt_crc32c(h, 20));
	n = MIN(n, (uint32_t)sizeof(plain));
	memcpy(ad, header, 64);
	memcpy(ad + 64, h, sizeof(h));
	put_u64(nonce, get_u32(h));
	a = crypt_aead_new(key);
	crypt_aead_seal(a, nonce, ad, sizeof(ad), plain, n, sealed, tag);
	crypt_aead_free(a);
	if (write(fd, h, sizeof(h)) < 0 || write(fd, sealed, n) < 0 ||
	    write(fd, tag, sizeof(tag)) < 0)
		NEVER("a memfd does not take it");
	return sizeof(h);
}

static void read_forged(int fd, const uint8_t *p, size_t len)
{
	uint8_t h[64] = { 'C', 'R', 'Y', 'T', 1 };

	if (len < 20)
		return;
	memcpy(h + 8, p, 4);
	memcpy(h + 12, "t0123456789abcdefghi", ID_LEN);
	memcpy(h + 32, p + 4, 16);
	put_u32(h + 60, crypt_crc32c(h, 60));
	if (ftruncate(fd, 0) < 0 || lseek(fd, 0, SEEK_SET) < 0 ||
	    write(fd, h, sizeof(h)) < 0)
		NEVER("a memfd does not take it");
	p += 20;
	len -= 20;
	while (len) {
		size_t n = put_record(fd, h, p, len);

		p += n;
		len -= n;
	}
	read_all(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	if (len > 4096)
		len = 4096;
	if (fd < 0 || write(fd, p, len) < 0)
		NEVER("no memfd");
	read_all(fd);
	read_forged(fd, p, len);
	close(fd);
	return 0;
}
