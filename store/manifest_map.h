/*
 * manifest_map: the parts that manifests and map chunks share: pack tables
 * and entry lists. Used by manifest.c and manifest_map.c only.
 */
#ifndef STORE_MANIFEST_MAP_H
#define STORE_MANIFEST_MAP_H

#include "store/manifest.h"

/* What an entry list may hold. */
struct manifest_scope {
	uint32_t first, end; /* indexes: first <= index < end */
	uint32_t nr_packs;
	bool base, zero; /* LOC_BASE, LOC_ZERO are allowed */
};

void manifest_put_packs(struct buf *b, const struct manifest_packs *p);
bool manifest_get_packs(struct cur *c, uint32_t nr, struct manifest_packs *ret);

void manifest_put_entries(struct buf *b, const struct manifest_entry *entries,
			  uint32_t nr, const struct manifest_scope *scope);

/* *ret is owned by the caller, also when this fails. */
bool manifest_get_entries(struct cur *c, const struct manifest_scope *scope,
			  struct manifest_entry **ret, uint32_t *ret_nr);

#endif
