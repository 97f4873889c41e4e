/*
 * Any bytes as the agent's stream, on either side. First as they are, in
 * pieces; then as the body of a frame whose header and trailer are right, so
 * that the bodies' decoder is reached. What decodes must encode again, to
 * the same bytes: there is one way to say a thing.
 */
#include "core/agent_proto.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

static void feed(struct agent_dec *d, const uint8_t *p, size_t len)
{
	size_t room;
	void *to = agent_dec_room(d, &room);

	memcpy(to, p, MIN(len, room));
	agent_dec_fed(d, MIN(len, room));
}

static void drain(struct agent_dec *d)
{
	struct agent_msg m;

	for (int r; (r = agent_dec_next(d, &m));)
		if (r < 0)
			POST(!d->synced);
}

static void as_stream(enum agent_side side, bool synced, const uint8_t *p,
		      size_t len)
{
	struct agent_dec d;

	agent_dec_init(&d, side);
	d.synced = synced;
	d.nonce = 7;
	while (len) {
		size_t n = MIN(len, (size_t)1 + p[0] * 16u);

		feed(&d, p, n);
		drain(&d);
		p += n;
		len -= n;
	}
	agent_dec_done(&d);
}

/* The header's CRC as a table-free loop: not the code under test. */
static uint32_t crc32c(const uint8_t *p, size_t len)
{
	uint32_t c = ~0u;

	for (size_t i = 0; i < len; i++) {
		c ^= p[i];
		for (int k = 0; k < 8; k++)
			c = c >> 1 ^ (c & 1 ? 0x82f63b78u : 0);
	}
	return ~c;
}

static void as_body(uint8_t type, const uint8_t *p, size_t len)
{
	static const uint8_t magic[4] = { 0xf5, 'c', 'r', 'y' };
	static const uint8_t tail[4] = { 0xf5, 'e', 'n', 'd' };
	struct buf frame SCOPED(buf_done) = { 0 };
	struct buf again SCOPED(buf_done) = { 0 };
	struct agent_msg m;
	struct agent_dec d;

	buf_put(&frame, magic, 4);
	buf_put_u8(&frame, 1);
	buf_put_u8(&frame, type);
	buf_put_u16(&frame, 0);
	buf_put_u32(&frame, (uint32_t)len);
	buf_put_u64(&frame, 7);
	buf_put_u32(&frame, crc32c(frame.p, 20));
	buf_put(&frame, p, len);
	buf_put_u32(&frame, ~get_u32(frame.p + 20));
	buf_put(&frame, tail, 4);
	agent_dec_init(&d, type < 0x40 ? AGENT_GUEST : AGENT_HOST);
	d.synced = true;
	d.nonce = 7;
	feed(&d, frame.p, frame.len);
	if (agent_dec_next(&d, &m) == 1) {
		POST(!agent_msg_encode(&again, &m));
		POST(again.len == frame.len);
		POST(!memcmp(again.p, frame.p, frame.len));
	}
	agent_dec_done(&d);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	if (len < 2 || len > AGENT_BODY_MAX)
		return 0;
	as_stream(p[0] & 1 ? AGENT_HOST : AGENT_GUEST, p[0] & 2, p + 1, len - 1);
	as_body(p[1], p + 2, len - 2);
	return 0;
}
