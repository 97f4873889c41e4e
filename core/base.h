/*
 * base: the few things that every file needs: assertions that stay on in
 * release, scoped clean-up, checked arithmetic, byte order.
 *
 * Assertions are for bugs only, never for input: a failed one ends the
 * process (replay of the log is the recovery).
 */
#ifndef CORE_BASE_H
#define CORE_BASE_H

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CRYO_VERSION "0.1.0"
#define CRYO_PAGE 4096u /* pages of memory and blocks of disk, everywhere */

_Noreturn void base_panic(const char *kind, const char *expr, const char *file,
			  int line);

/* PRE: the caller's duty; POST: ours; NEVER: a place that can't be reached */
#define PRE(x) \
	((x) ? (void)0 : base_panic("precondition", #x, __FILE__, __LINE__))
#define POST(x) \
	((x) ? (void)0 : base_panic("postcondition", #x, __FILE__, __LINE__))
#define IMPLIES(a, b) (!(a) || (b))
#define NEVER(why) base_panic("never", why, __FILE__, __LINE__)

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define UNUSED __attribute__((unused))
#define PRINTF(f, a) __attribute__((format(printf, f, a)))
#define CONTAINER_OF(p, type, member) \
	((type *)(void *)((char *)(p)-offsetof(type, member)))

/*
 * SCOPED(fn): `fn(&var)` runs when the variable goes out of scope.
 * STEAL(p): hands a pointer on and leaves NULL behind.
 */
#define SCOPED(fn) __attribute__((cleanup(fn)))
#define STEAL(p)                            \
	({                                  \
		__typeof__(p) steal_ = (p); \
		(p) = NULL;                 \
		steal_;                     \
	})

static inline void base_free_p(void *p)
{
	free(*(void **)p);
}

static inline void base_close_p(const int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

#define SCOPED_FREE SCOPED(base_free_p)
#define SCOPED_FD SCOPED(base_close_p)

/* Hands a descriptor on and leaves -1 behind. */
static inline int base_steal_fd(int *fd)
{
	int r = *fd;

	*fd = -1;
	return r;
}

/* Control-plane allocation: zeroed, panics when there is no memory. */
void *base_alloc(size_t len);
void *base_realloc(void *p, size_t len);
char *base_strdup(const char *s);
char *base_printf(const char *fmt, ...) PRINTF(1, 2);

/* Copies with truncation, always terminated; true if it fitted. */
bool base_strcpy(char *dst, size_t len, const char *src);

/* Monotone helpers for whole reads and writes; -errno, -EPIPE on early end */
int base_write_all(int fd, const void *p, size_t len);
int base_read_all(int fd, void *p, size_t len);
int base_pwrite_all(int fd, const void *p, size_t len, uint64_t off);
int base_pread_all(int fd, void *p, size_t len, uint64_t off);

/* Overwrites secrets in a way the compiler keeps. */
void base_wipe(void *p, size_t len);

/* Compares secrets in constant time; true if equal. */
bool base_same_secret(const void *a, const void *b, size_t len);

/* Random bytes of the host kernel; panics if the kernel has none. */
void base_random(void *p, size_t len);

/* Little-endian stores and loads at any alignment. */
static inline void put_u16(void *p, uint16_t v)
{
	uint8_t *b = p;

	b[0] = (uint8_t)v;
	b[1] = (uint8_t)(v >> 8);
}

static inline void put_u32(void *p, uint32_t v)
{
	put_u16(p, (uint16_t)v);
	put_u16((uint8_t *)p + 2, (uint16_t)(v >> 16));
}

static inline void put_u64(void *p, uint64_t v)
{
	put_u32(p, (uint32_t)v);
	put_u32((uint8_t *)p + 4, (uint32_t)(v >> 32));
}

static inline uint16_t get_u16(const void *p)
{
	const uint8_t *b = p;

	return (uint16_t)(b[0] | b[1] << 8);
}

static inline uint32_t get_u32(const void *p)
{
	return get_u16(p) | (uint32_t)get_u16((const uint8_t *)p + 2) << 16;
}

static inline uint64_t get_u64(const void *p)
{
	return get_u32(p) | (uint64_t)get_u32((const uint8_t *)p + 4) << 32;
}

/* Big-endian, for keys that LMDB sorts by bytes. */
static inline void put_be64(void *p, uint64_t v)
{
	uint8_t *b = p;

	for (int i = 0; i < 8; i++)
		b[i] = (uint8_t)(v >> (56 - 8 * i));
}

static inline uint64_t get_be64(const void *p)
{
	const uint8_t *b = p;
	uint64_t v = 0;

	for (int i = 0; i < 8; i++)
		v = v << 8 | b[i];
	return v;
}

#endif
