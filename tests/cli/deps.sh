#!/bin/bash
# tools/deps: silent when all is there; else says what it installs, lists first, or why it cannot.
. "${SHOAL_TESTS:?}/lib.sh"

# A machine of our own: these commands and no others. apt-get writes down how it was called.
mkdir bin
for tool in sh env cat tail mktemp rm gcc make pkg-config; do ln -s "$(command -v $tool)" "bin/$tool"; done
fake() { printf '#!/bin/sh\n%s\n' "$2" >"bin/$1" && chmod +x "bin/$1"; }
deps() { env -i PATH="$WORK/bin" "$@" "$REPO/tools/deps" build; }
missing=PKG_CONFIG_LIBDIR=/nowhere
names='libyaml-dev libjansson-dev libisal-dev libzstd-dev libssl-dev'

fake id 'echo 0'
check_exit 1 'missing packages and no apt' deps $missing
check 'names them' has "$(cat err)" "$names" 'no apt-get here'

fake apt-get "echo \"\$*\" >>$WORK/calls"
check_exit 0 'nothing is missing' deps
check 'says nothing' test ! -s out -a ! -s err -a ! -e calls

check_exit 0 'installs what is missing' deps $missing
check 'says what' has "$(cat out)" "installing $names"
check 'updates the lists first' has "$(head -n 1 calls)" ' update'
check 'then installs just those' has "$(tail -n 1 calls)" 'install -y' "$names"

fake id 'echo 1000'
check_exit 1 'not root, no sudo' deps $missing
check 'says what root can do' has "$(cat err)" 'no sudo' "apt-get install $names"
fake sudo 'echo sudo >>'"$WORK"'/calls; exec "$@"'
rm calls
check_exit 0 'not root, sudo' deps $missing
check 'calls sudo' has "$(head -n 1 calls)" sudo

fake apt-get 'echo "E: no such package" >&2; exit 100'
check_exit 1 'apt fails' deps $missing
check 'shows why' has "$(cat err)" 'no such package' 'could not install'
finish
