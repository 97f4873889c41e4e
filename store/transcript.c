/*
 * transcript: see transcript.h for the format. A record is written by one
 * writev, so a reader sees whole records up to a torn tail, which is the end.
 *
 * Invariants: 1. a number seals one plaintext, ever: the counter moves before
 * the write, also when the write fails. 2. Offsets of a stream have no holes:
 * dropped bytes come only after the limit, where nothing follows. 3. After a
 * failed write the file is cut back to its last whole record, and nothing is
 * appended until that has succeeded.
 *
 * A crash leaves whole records and perhaps a torn one, which readers take for
 * the end; nobody appends to the file again.
 */
#include "store/transcript.h"

#include <sys/uio.h>

#include "store/crypt.h"
#include "store/datadir.h"

#define RECORD_HEADER_LEN 24

static const uint8_t transcript_magic[4] = { 'C', 'R', 'Y', 'T' };

struct transcript {
	int fd;
	struct crypt_aead *aead;
	uint8_t header[TRANSCRIPT_HEADER_LEN];
	uint64_t file_len;
	uint32_t number;
	uint64_t kept; /* bytes of output stored */
	uint64_t end[3]; /* by stream */
	bool full;
	bool torn; /* bytes of a failed write may be at the end */
	uint8_t sealed[TRANSCRIPT_RECORD_MAX];
};

static void transcript_put_header(uint8_t h[TRANSCRIPT_HEADER_LEN],
				  const struct transcript_info *info)
{
	memset(h, 0, TRANSCRIPT_HEADER_LEN);
	memcpy(h, transcript_magic, 4);
	put_u16(h + 4, 1);
	put_u32(h + 8, info->epoch);
	memcpy(h + 12, info->tag, ID_LEN);
	put_u64(h + 32, info->out_from);
	put_u64(h + 40, info->err_from);
	put_u32(h + 60, crypt_crc32c(h, 60));
}

int transcript_create(struct transcript **ret, int fd, const uint8_t key[32],
		      const struct transcript_info *info, struct err *e)
{
	struct transcript *t = base_alloc(sizeof(*t));
	int r;

	PRE(id_valid(info->tag));
	t->fd = fd;
	t->aead = crypt_aead_new(key);
	t->end[TRANSCRIPT_OUT] = info->out_from;
	t->end[TRANSCRIPT_ERR] = info->err_from;
	t->file_len = TRANSCRIPT_HEADER_LEN;
	transcript_put_header(t->header, info);
	r = base_write_all(fd, t->header, TRANSCRIPT_HEADER_LEN);
	if (r < 0) {
		transcript_free(t);
		return err_sys(e, -r, "write the transcript of exec %s",
			       info->tag);
	}
	*ret = t;
	return 0;
}

void transcript_free(struct transcript *t)
{
	if (!t)
		return;
	crypt_aead_free(t->aead);
	close(t->fd);
	free(t);
}

static void transcript_ad(uint8_t ad[TRANSCRIPT_HEADER_LEN + RECORD_HEADER_LEN],
			  const uint8_t *header, const uint8_t *record)
{
	memcpy(ad, header, TRANSCRIPT_HEADER_LEN);
	memcpy(ad + TRANSCRIPT_HEADER_LEN, record, RECORD_HEADER_LEN);
}

static int transcript_write(struct transcript *t, uint8_t *header, size_t len,
			    uint8_t *tag)
{
	struct iovec v[3] = {
		{ .iov_base = header, .iov_len = RECORD_HEADER_LEN },
		{ .iov_base = t->sealed, .iov_len = len },
		{ .iov_base = tag, .iov_len = CRYPT_TAG_LEN },
	};
	size_t want = RECORD_HEADER_LEN + len + CRYPT_TAG_LEN;
	ssize_t n;
	int en;

	if (t->torn && ftruncate(t->fd, (off_t)t->file_len) < 0)
		return -errno;
	t->torn = false;
	n = writev(t->fd, v, 3);
	en = n < 0 ? errno : ENOSPC;
	if (n == (ssize_t)want) {
		t->file_len += want;
		return 0;
	}
	/* a torn record is the end for readers; the cut lets more follow */
	t->torn = n > 0 && ftruncate(t->fd, (off_t)t->file_len) < 0;
	return -en;
}

static int transcript_record(struct transcript *t, enum transcript_stream s,
			     const uint8_t *p, size_t len)
{
	uint8_t header[RECORD_HEADER_LEN] = { 0 };
	uint8_t ad[TRANSCRIPT_HEADER_LEN + RECORD_HEADER_LEN];
	uint8_t nonce[CRYPT_NONCE_LEN] = { 0 }, tag[CRYPT_TAG_LEN];
	int r;

	if (t->number == UINT32_MAX)
		return -EFBIG;
	t->number++;
	put_u32(header, t->number);
	header[4] = (uint8_t)s;
	put_u64(header + 8, t->end[s]);
	put_u32(header + 16, (uint32_t)len);
	put_u32(header + 20, crypt_crc32c(header, 20));
	put_u64(nonce, t->number);
	transcript_ad(ad, t->header, header);
	crypt_aead_seal(t->aead, nonce, ad, sizeof(ad), p, len, t->sealed, tag);
	r = datadir_room(t->fd, DATADIR_LEAVE_OUTPUT);
	if (r == 0)
		r = transcript_write(t, header, len, tag);
	if (r < 0)
		return r;
	t->end[s] += len;
	t->kept += len;
	return 0;
}

int transcript_append(struct transcript *t, enum transcript_stream s,
		      uint64_t offset, const void *bytes, size_t len)
{
	const uint8_t *p = bytes;

	PRE(s == TRANSCRIPT_OUT || s == TRANSCRIPT_ERR);
	if (offset > t->end[s] || offset + len < offset)
		return -EINVAL;
	if (offset + len <= t->end[s])
		return t->full;
	p += t->end[s] - offset;
	len -= t->end[s] - offset;
	while (len && !t->full) {
		size_t n = MIN(len, TRANSCRIPT_RECORD_MAX);
		int r;

		if (t->kept + n > TRANSCRIPT_LIMIT) {
			t->full = true;
			break;
		}
		r = transcript_record(t, s, p, n);
		if (r < 0)
			return r;
		p += n;
		len -= n;
	}
	t->end[s] += t->full ? len : 0;
	return t->full;
}

uint64_t transcript_end(const struct transcript *t, enum transcript_stream s)
{
	return t->end[s];
}

int transcript_sync(struct transcript *t)
{
	return fdatasync(t->fd) < 0 ? -errno : 0;
}

/* --- reader -------------------------------------------------------------- */

struct transcript_reader {
	int fd;
	struct crypt_aead *aead;
	uint8_t header[TRANSCRIPT_HEADER_LEN];
	struct transcript_info info;
	uint64_t at; /* of the next record */
	uint64_t end[3]; /* by stream: where its next record begins */
	uint32_t number;
	uint8_t bytes[TRANSCRIPT_RECORD_MAX + CRYPT_TAG_LEN];
};

int transcript_reader_open(struct transcript_reader **ret, int fd,
			   const uint8_t key[32], struct err *e)
{
	struct transcript_reader *r = base_alloc(sizeof(*r));
	uint8_t *h = r->header;

	r->fd = fd;
	r->aead = crypt_aead_new(key);
	if (lseek(fd, 0, SEEK_END) < TRANSCRIPT_HEADER_LEN) {
		transcript_reader_free(r);
		return -ENODATA;
	}
	if (base_pread_all(fd, h, TRANSCRIPT_HEADER_LEN, 0) < 0) {
		transcript_reader_free(r);
		return err_set(e, -EIO, ERR_INTERNAL, "can't read a transcript");
	}
	memcpy(r->info.tag, h + 12, ID_LEN);
	if (!id_valid(r->info.tag) || memcmp(h, transcript_magic, 4) ||
	    get_u16(h + 4) != 1 || get_u16(h + 6) || get_u64(h + 48) ||
	    get_u32(h + 56) || get_u32(h + 60) != crypt_crc32c(h, 60)) {
		transcript_reader_free(r);
		return err_set(e, -EBADMSG, ERR_CORRUPT,
			       "transcript has no valid header");
	}
	r->info.epoch = get_u32(h + 8);
	r->info.out_from = r->end[TRANSCRIPT_OUT] = get_u64(h + 32);
	r->info.err_from = r->end[TRANSCRIPT_ERR] = get_u64(h + 40);
	r->at = TRANSCRIPT_HEADER_LEN;
	*ret = r;
	return 0;
}

void transcript_reader_free(struct transcript_reader *r)
{
	if (!r)
		return;
	crypt_aead_free(r->aead);
	close(r->fd);
	free(r);
}

const struct transcript_info *
transcript_reader_info(const struct transcript_reader *r)
{
	return &r->info;
}

/* The clear header of the next record; 1 if there is none (yet). */
static int transcript_reader_header(struct transcript_reader *r,
				    uint8_t h[RECORD_HEADER_LEN], uint32_t *len)
{
	if (base_pread_all(r->fd, h, RECORD_HEADER_LEN, r->at) < 0)
		return 1;
	*len = get_u32(h + 16);
	if (get_u32(h + 20) != crypt_crc32c(h, 20) || h[5] || get_u16(h + 6) ||
	    (h[4] != TRANSCRIPT_OUT && h[4] != TRANSCRIPT_ERR) || *len == 0 ||
	    *len > TRANSCRIPT_RECORD_MAX || get_u32(h) <= r->number ||
	    get_u64(h + 8) != r->end[h[4]] || r->end[h[4]] + *len < *len)
		return -EBADMSG;
	return 0;
}

int transcript_reader_next(struct transcript_reader *r,
			   struct transcript_piece *ret, struct err *e)
{
	uint8_t h[RECORD_HEADER_LEN], nonce[CRYPT_NONCE_LEN] = { 0 };
	uint8_t ad[TRANSCRIPT_HEADER_LEN + RECORD_HEADER_LEN];
	uint32_t len = 0;
	int rc = transcript_reader_header(r, h, &len);

	if (rc > 0)
		return 1;
	if (rc == 0 && base_pread_all(r->fd, r->bytes, len + CRYPT_TAG_LEN,
				      r->at + RECORD_HEADER_LEN) < 0)
		return 1;
	put_u64(nonce, get_u32(h));
	transcript_ad(ad, r->header, h);
	if (rc == 0)
		rc = crypt_aead_open(r->aead, nonce, ad, sizeof(ad), r->bytes,
				     len, r->bytes + len, r->bytes);
	if (rc < 0)
		return err_set(e, -EBADMSG, ERR_CORRUPT,
			       "transcript of exec %s is damaged at byte %llu",
			       r->info.tag, (unsigned long long)r->at);
	r->number = get_u32(h);
	r->end[h[4]] += len;
	r->at += RECORD_HEADER_LEN + len + CRYPT_TAG_LEN;
	*ret = (struct transcript_piece){ .stream = h[4],
					  .offset = get_u64(h + 8),
					  .p = r->bytes,
					  .len = len };
	return 0;
}
