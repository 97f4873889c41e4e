#!/bin/sh
# Forks whose ancestors are destroyed: what they start from is theirs for as
# long as they live, and they can pass it on.
. tests/e2e/lib.sh
up

cryo create --name old --snapshot-every 1h >/dev/null
guest old sh -c 'echo of old >/root/word; sync'
cryo snapshot old >/dev/null

# child has no point of its own: its present is its base, a point of old's
cryo fork old --name child >/dev/null
base=$(field child base.id)
cryo rm old >/dev/null
ok "a session with forks is destroyed" wait_for 30 sh -c "! '$B/cryo' show old"
is "its fork has what it had" "$(guest child cat /root/word)" "of old"
cryo fork child --at "$base" --name grandchild >/dev/null
is "and is forked at its base, whose session is gone" \
	"$(guest grandchild cat /root/word)" "of old"

# back to the base: by rewind, and after an end without a point of its own
guest child sh -c 'echo other >/root/word'
cryo rewind child --at "$base"
is "the fork is taken back to its base" "$(guest child cat /root/word)" "of old"
for p in $(proc_named qemu); do
	kill -9 "$p"
done
ok "a fork whose machine is killed" wait_for 30 is_state grandchild failed
cryo resume grandchild
is "starts again from its base" "$(guest grandchild cat /root/word)" "of old"

cryo rm child >/dev/null
cryo suspend grandchild >/dev/null
cryo resume grandchild
is "and from points of its own, with all ancestors gone" \
	"$(guest grandchild cat /root/word)" "of old"
cryo rm grandchild >/dev/null
ok "and all of it verifies" cryo verify --deep
done_testing
