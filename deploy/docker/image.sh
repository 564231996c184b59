#!/bin/sh
# image.sh BINARY FOLDER: lays out the files of an image in FOLDER. The binary links the C library, which resolves names
# without further files (glibc 2.34 or later). Root certificates are part of the binary.
set -eu
binary=$1
image=$2
mkdir -p "$image/usr/local/bin" "$image/etc" "$image/tmp" "$image/var/lib/railpost"
cp "$binary" "$image/usr/local/bin/railpost"
ldd "$binary" | grep -o '/[^ ]*' | while read -r library; do
    mkdir -p "$image$(dirname "$library")"
    cp -L "$library" "$image$library"
done
echo 'hosts: files dns' > "$image/etc/nsswitch.conf"
echo 'railpost:x:65532:65532::/var/lib/railpost:/nonexistent' > "$image/etc/passwd"
chmod 700 "$image/var/lib/railpost"
chmod 1777 "$image/tmp"
