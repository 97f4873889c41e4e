/*
 * base64: RFC 4648 section 4.
 *
 * Invariants: decode(encode(x)) = x; decode accepts exactly what encode
 * writes: no line breaks, no missing padding, no stray bits under it.
 */
#include "api/base64.h"

static const char base64_digits[] =
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static uint8_t base64_at(const uint8_t *in, size_t len, size_t i)
{
	return i < len ? in[i] : 0;
}

void base64_encode(struct buf *b, const void *p, size_t len)
{
	const uint8_t *in = p;
	size_t need = (len + 2) / 3 * 4;
	char *out = buf_reserve(b, need);

	for (size_t i = 0; i < len; i += 3, out += 4) {
		uint32_t v = (uint32_t)in[i] << 16 |
			     (uint32_t)base64_at(in, len, i + 1) << 8 |
			     base64_at(in, len, i + 2);

		out[0] = base64_digits[v >> 18];
		out[1] = base64_digits[v >> 12 & 63];
		out[2] = i + 1 < len ? base64_digits[v >> 6 & 63] : '=';
		out[3] = i + 2 < len ? base64_digits[v & 63] : '=';
	}
	b->len += need;
}

static int base64_digit(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	if (c == '+')
		return 62;
	return c == '/' ? 63 : -1;
}

/* One group of four; `pad` of its last characters are padding. */
static int base64_group(const char *p, size_t pad, uint8_t out[3])
{
	uint32_t v = 0;

	for (size_t i = 0; i < 4; i++) {
		int d = i < 4 - pad ? base64_digit(p[i]) : 0;

		if (d < 0)
			return -EINVAL;
		v = v << 6 | (uint32_t)d;
	}
	if (v & ((1u << 8 * pad) - 1))
		return -EINVAL;
	out[0] = (uint8_t)(v >> 16);
	out[1] = (uint8_t)(v >> 8);
	out[2] = (uint8_t)v;
	return 0;
}

int base64_decode(struct buf *b, const char *p, size_t len)
{
	size_t pad = 0;
	uint8_t *out;

	if (len % 4)
		return -EINVAL;
	if (len)
		pad = (p[len - 1] == '=') + (size_t)(p[len - 2] == '=');
	if (pad == 1 && p[len - 1] != '=')
		return -EINVAL;
	out = buf_reserve(b, len / 4 * 3);
	for (size_t i = 0; i < len; i += 4, out += 3)
		if (base64_group(p + i, i + 4 == len ? pad : 0, out) < 0)
			return -EINVAL;
	b->len += len / 4 * 3 - pad;
	return 0;
}
