/*
 * api_base64: RFC 4648's own vectors, everything that is not canonical, and
 * decode(encode(x)) = x for seeded x.
 */
#include "api/base64.h"

#include "tests/tap.h"

static void vectors(void)
{
	/* RFC 4648, section 10 */
	static const char *const v[][2] = {
		{ "", "" },
		{ "f", "Zg==" },
		{ "fo", "Zm8=" },
		{ "foo", "Zm9v" },
		{ "foob", "Zm9vYg==" },
		{ "fooba", "Zm9vYmE=" },
		{ "foobar", "Zm9vYmFy" },
	};
	static const uint8_t high[] = { 0xfb, 0xff, 0xfe };

	for (size_t i = 0; i < ARRAY_LEN(v); i++) {
		SCOPED(buf_done) struct buf b = { 0 }, back = { 0 };

		base64_encode(&b, v[i][0], strlen(v[i][0]));
		is_str(buf_cstr(&b), v[i][1], "encode \"%s\"", v[i][0]);
		is_int(base64_decode(&back, v[i][1], strlen(v[i][1])), 0,
		       "decode \"%s\"", v[i][1]);
		is_str(buf_cstr(&back), v[i][0], "gives the bytes back");
	}
	{
		SCOPED(buf_done) struct buf b = { 0 };

		base64_encode(&b, high, sizeof(high));
		is_str(buf_cstr(&b), "+//+", "digits 62 and 63");
	}
}

static void refusals(void)
{
	static const char *const bad[] = {
		"Zg",	"Zg=",	"Z===", "====", "Zg==Zg==", "Zm9v\n",	"Zh==",
		"Zm9=", "Zm 9", "Zm9-", "Z=g=", "Zm9vYg=a", "Zm9vY===", "=m9v",
	};

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		SCOPED(buf_done) struct buf b = { 0 };

		buf_put_str(&b, "kept");
		is_int(base64_decode(&b, bad[i], strlen(bad[i])), -EINVAL,
		       "refuses \"%s\"", bad[i]);
		is_str(buf_cstr(&b), "kept", "and appends nothing");
	}
}

static void round_trip(uint64_t seed)
{
	bool same = true;

	for (int i = 0; i < 500 && same; i++) {
		SCOPED(buf_done) struct buf b = { 0 }, back = { 0 };
		uint8_t raw[200];
		size_t len = (size_t)(tap_rand(&seed) % sizeof(raw));

		for (size_t k = 0; k < len; k++)
			raw[k] = (uint8_t)tap_rand(&seed);
		base64_encode(&b, raw, len);
		same = b.len == (len + 2) / 3 * 4 &&
		       !base64_decode(&back, (char *)b.p, b.len) &&
		       back.len == len && (!len || !memcmp(back.p, raw, len));
	}
	ok(same, "decode(encode(x)) = x");
}

int main(void)
{
	vectors();
	refusals();
	round_trip(tap_seed());
	return tap_done();
}
