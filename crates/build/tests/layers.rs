//! Tests of container images with layers that remove files, as OCI layouts and as archives of
//! docker.

mod image;

use image::{assert_same, build_from, can_mount, scratch, shell, survey_image, try_build};
use lanefs_build::{Builder, Source};
use std::path::Path;

/// Makes three layers, and the tree that results from them.
fn layers(dir: &Path) {
    shell(
        dir,
        r"mkdir l1 l2 l3 whole
        mkdir -p l1/etc l1/opaque/sub l1/gone/deep l1/usr/bin
        echo base >l1/etc/motd; echo old >l1/opaque/old; echo old >l1/opaque/sub/old
        echo x >l1/gone/deep/x; echo one >l1/kept; ln l1/kept l1/linked; ln -s usr/bin l1/bin
        head -c 300000 /dev/urandom >l1/replaced
        mkdir -p l2/opaque/sub l2/etc l2/bin
        echo new >l2/etc/motd; : >l2/.wh.gone; : >l2/opaque/.wh..wh..opq
        echo new >l2/opaque/sub/new; : >l2/.wh.kept; echo small >l2/replaced
        : >l2/.wh..wh.plnk
        mkdir -p l3/gone; echo again >l3/gone/y; echo tool >l3/tool
        for l in l1 l2 l3; do find $l -exec touch -h -d 2020-01-01 {} +; done
        # The layer's directory entry for bin would replace the link; name the file alone.
        rmdir l2/bin; mkdir -p x/bin; echo tool >x/bin/tool; touch -d 2020-01-01 x/bin/tool
        tar --sort=name -cf l1.tar -C l1 .; tar --sort=name -cf l2.tar -C l2 .
        tar -rf l2.tar -C x bin/tool; tar --sort=name -cf l3.tar -C l3 .
        cp -a l1/. whole; rm -r whole/gone whole/opaque whole/kept; cp -a l2/. whole
        rm -r whole/.wh* whole/opaque/.wh*; cp -a x/bin/tool whole/usr/bin; cp -a l3/. whole
        find whole -type d -exec touch -d 2020-01-01 {} +",
    );
}

/// Writes an OCI layout of three layers: one is not compressed, one is compressed with gzip, and
/// one with xz.
fn layout(dir: &Path) {
    shell(
        dir,
        r#"mkdir -p oci/blobs/sha256; cd oci
        add() { h=$(sha256sum <$1 | cut -d' ' -f1); mv $1 blobs/sha256/$h; echo sha256:$h; }
        cp ../l1.tar a; gzip -c ../l2.tar >b; xz -c ../l3.tar >c
        printf '{"layers":[{"digest":"%s"},{"digest":"%s"},{"digest":"%s"}]}' \
            $(add a) $(add b) $(add c) >m
        m=$(add m)
        printf '{"manifests":[{"digest":"%s","annotations":{"org.opencontainers.image.ref.name":"v1"}}]}' $m >index.json
        echo '{"imageLayoutVersion":"1.0.0"}' >oci-layout
        tar -cf ../oci.tar ."#,
    );
}

fn docker(dir: &Path) {
    shell(
        dir,
        r#"mkdir -p docker; cd docker; cp ../l?.tar .
        id() { echo sha256:$(sha256sum <$1 | cut -d' ' -f1); }
        printf '{"rootfs":{"diff_ids":["%s","%s","%s"]}}' $(id l1.tar) $(id l2.tar) $(id l3.tar) >c.json
        ln -s l1.tar first.tar
        echo '[{"Config":"c.json","RepoTags":["a:1"],"Layers":["first.tar","l2.tar","l3.tar"]}]' >manifest.json
        tar -cf ../docker.tar manifest.json *; gzip -c ../docker.tar >../docker.tar.gz"#,
    );
}

#[test]
fn layers_are_applied_in_order_with_their_whiteouts() {
    if !can_mount() {
        return;
    }
    let dir = scratch();
    layers(dir.path());
    layout(dir.path());
    docker(dir.path());
    let image = dir.path().join("a.img");
    let expected = image::survey(&dir.path().join("whole"));
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    for name in ["oci", "oci.tar", "docker.tar", "docker.tar.gz"] {
        println!("{name}");
        build_from(&image, Source::detect(&path(name)).unwrap());
        assert_same(&survey_image(&image), &expected);
    }
    let named = Source::detect(&format!("oci:{}:v1", path("oci"))).unwrap();
    build_from(&image, named);
    let missing = Source::detect(&format!("oci:{}:v2", path("oci"))).unwrap();
    let error = try_build(&image, Builder::new().source(missing)).unwrap_err().to_string();
    assert!(error.ends_with("the image 'v2' is missing"), "{error}");
}

#[test]
fn a_blob_with_a_wrong_digest_is_refused() {
    let dir = scratch();
    layers(dir.path());
    layout(dir.path());
    docker(dir.path());
    // The replaced blobs are valid archives, but their digests differ from those in the manifest.
    shell(
        dir.path(),
        "f=$(ls -S oci/blobs/sha256/* | head -1); cp l3.tar $f
        cp l2.tar docker/l3.tar; cd docker; tar -cf ../bad.tar manifest.json *",
    );
    let image = dir.path().join("a.img");
    for name in ["oci", "bad.tar"] {
        let source = Source::detect(dir.path().join(name).to_str().unwrap()).unwrap();
        let error = try_build(&image, Builder::new().source(source)).unwrap_err().to_string();
        assert!(error.contains("has the digest sha256:"), "{name}: {error}");
        let e2fsck = std::process::Command::new("e2fsck").arg("-fn").arg(&image).output().unwrap();
        assert!(!e2fsck.status.success(), "no superblock was written");
    }
}

#[test]
fn what_is_not_a_container_image_is_refused_with_the_reason() {
    let dir = scratch();
    shell(dir.path(), "mkdir d; cd d; echo a >a; tar -cf ../a.tar a; echo {} >oci-layout");
    let reasons = [
        ("a.tar", "neither oci-layout and index.json nor manifest.json"),
        ("a.tar", "tar:PATH reads a plain tar, tar:- standard input"),
        ("d", "the file index.json of an OCI layout"),
    ];
    for (name, reason) in reasons {
        let source = Source::container(dir.path().join(name), None);
        let image = dir.path().join("a.img");
        let error = try_build(&image, Builder::new().source(source)).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn whiteouts_in_plain_tars_are_files_unless_asked_for() {
    let dir = scratch();
    shell(
        dir.path(),
        "mkdir a b; echo x >a/f; : >b/.wh.f; tar -cf a.tar -C a f; tar -cf b.tar -C b .wh.f",
    );
    let tar = |name: &str| Source::tar(dir.path().join(name));
    let both = || Builder::new().source(tar("a.tar")).source(tar("b.tar"));
    let image = dir.path().join("a.img");
    assert_eq!(image::build(&image, both()).files, 2);
    let removing = both().whiteouts(lanefs_build::Whiteouts::Removals);
    assert_eq!(image::build(&image, removing).files, 0);
}
