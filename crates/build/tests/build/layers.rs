//! Tests of container images with layers that remove files, as OCI layouts and as archives of
//! docker.

use crate::image;

use crate::image::{assert_same, build_from, can_mount, scratch, shell, survey_image, try_build};
use lanefs_build::{Builder, Source};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
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
        add() {
            h=$(sha256sum <$1 | cut -d' ' -f1); n=$(stat -c %s $1); mv $1 blobs/sha256/$h
            printf '"digest":"sha256:%s","size":%s' $h $n
        }
        id() { echo sha256:$(sha256sum <../$1 | cut -d' ' -f1); }
        printf '{"rootfs":{"diff_ids":["%s","%s","%s"]}}' $(id l1.tar) $(id l2.tar) $(id l3.tar) >config
        cp ../l1.tar a; gzip -c ../l2.tar >b; xz -c ../l3.tar >c
        printf '{"config":{%s},"layers":[{%s},{%s},{%s}]}' \
            $(add config) $(add a) $(add b) $(add c) >m
        m=$(add m)
        printf '{"manifests":[{%s,"annotations":{"org.opencontainers.image.ref.name":"v1"}}]}' $m >index.json
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
    shell(
        dir.path(),
        r#"mkdir skopeo several; cp oci/blobs/sha256/* skopeo; cp skopeo/* several; cd skopeo
        m=$(grep -o '[0-9a-f]\{64\}' ../oci/index.json); mv $m manifest.json
        printf 'Directory Transport Version: 1.1\n' | tee version >../several/version; cd ../several
        n=$(stat -c %s $m); mv $m $m.manifest.json
        printf '{"manifests":[{"digest":"sha256:%s","size":%s}]}' $m $n >manifest.json"#,
    );
    for name in ["oci", "oci.tar", "docker.tar", "docker.tar.gz", "skopeo", "several"] {
        println!("{name}");
        build_from(&image, Source::detect(&path(name)).unwrap());
        assert_same(&survey_image(&image), &expected);
    }
    let named = Source::detect(&format!("oci:{}:v1", path("oci"))).unwrap();
    build_from(&image, named);
    let missing = Source::detect(&format!("oci:{}:v2", path("oci"))).unwrap();
    let error = try_build(&image, Builder::new().source(missing)).unwrap_err().to_string();
    assert!(error.ends_with("the image 'v2' is missing"), "{error}");
    // A layer that skopeo's directory lacks is named, and one that was damaged is found.
    let layer = "skopeo/$(sha256sum <l1.tar | cut -c1-64)";
    for (damage, why) in [("echo x >>", "states is not valid"), ("rm ", "is missing")] {
        shell(dir.path(), &format!("{damage}{layer}"));
        let source = Source::detect(&path("skopeo")).unwrap();
        let error = try_build(&image, Builder::new().source(source)).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
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
        "f=$(ls -S oci/blobs/sha256/* | head -1); n=$(stat -c %s $f); cp l3.tar $f; truncate -s $n $f
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

/// Writes `NAME.tar` as go-containerregistry does, with which crane, ko and kaniko write archives:
/// the configuration first, the list of images last.
fn crane(dir: &Path) {
    shell(
        dir,
        r#"mkdir crane; cd crane; n() { sha256sum <$1 | cut -d' ' -f1; }
        for l in 1 2 3; do gzip -nc ../l$l.tar >l; eval l$l=$(n l).tar.gz; mv l $(n l).tar.gz; done
        cp ../docker/c.json c; c=sha256:$(n c); mv c $c
        printf '[{"Config":"%s","RepoTags":["a:1"],"Layers":["%s","%s","%s"]}]' \
            $c $l1 $l2 $l3 >manifest.json
        tar --force-local -cf ../crane.tar $c $l1 $l2 $l3 manifest.json
        tar --force-local -cf ../layer-first.tar $l1 $c $l2 $l3 manifest.json
        gzip -c ../crane.tar >../crane.tar.gz"#,
    );
}

#[test]
fn an_archive_is_recognised_wherever_its_manifest_lies() {
    if !can_mount() {
        return;
    }
    let dir = scratch();
    layers(dir.path());
    layout(dir.path());
    docker(dir.path());
    crane(dir.path());
    shell(
        dir.path(),
        r#"mkdir more; seq 300 | sed 's/^/more\/x/' | xargs touch
        tar -cf late.tar more -C docker l1.tar first.tar l2.tar l3.tar c.json manifest.json
        tar -cf oci-late.tar more -C oci blobs index.json oci-layout
        # Hard links and sparse files, as GNU tar writes trees that have them.
        cd oci; truncate -s 30000 sparse; for b in blobs/sha256/*; do ln $b same-$(basename $b); done
        tar -cf ../linked.tar same-* blobs index.json oci-layout sparse
        for v in 0.0 0.1 1.0; do
            tar -H pax --sparse-version=$v --sparse -cf ../sparse-$v.tar blobs index.json oci-layout
        done
        tar -H gnu --sparse -cf ../sparse-gnu.tar blobs index.json oci-layout"#,
    );
    let image = dir.path().join("a.img");
    let expected = image::survey(&dir.path().join("whole"));
    for name in [
        "crane.tar",
        "crane.tar.gz",
        "layer-first.tar",
        "late.tar",
        "oci-late.tar",
        "linked.tar",
        "sparse-0.0.tar",
        "sparse-0.1.tar",
        "sparse-1.0.tar",
        "sparse-gnu.tar",
    ] {
        println!("{name}");
        build_from(&image, Source::detect(dir.path().join(name).to_str().unwrap()).unwrap());
        assert_same(&survey_image(&image), &expected);
    }
}

#[test]
fn a_plain_tar_with_a_manifest_of_something_else_is_a_plain_tar() {
    let dir = scratch();
    shell(
        dir.path(),
        r#"mkdir w; cd w; echo '{"name":"app","icons":[]}' >manifest.json; echo x >index.html
        tar -cf ../w.tar *; tar -czf ../w.tar.gz manifest.json index.html"#,
    );
    for name in ["w.tar", "w.tar.gz"] {
        let source = Source::detect(dir.path().join(name).to_str().unwrap()).unwrap();
        assert_eq!(build_from(&dir.path().join("a.img"), source).files, 2, "{name}");
    }
}

/// The JSON of an image: index and manifest of an OCI layout, or twice the list of docker; and the
/// configuration.
struct Json {
    index: Value,
    manifest: Value,
    config: Value,
}

impl Json {
    fn diff_ids(&mut self) -> &mut Vec<Value> {
        self.config["rootfs"]["diff_ids"].as_array_mut().unwrap()
    }
}

fn load(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn blob(descriptor: &Value) -> String {
    format!("blobs/{}", descriptor["digest"].as_str().unwrap().replace(':', "/"))
}

fn digest_of(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Changes the image in a directory. In an OCI layout, all that refers to a changed blob is made
/// right again, except where the change itself is in what refers.
fn change(dir: &Path, change: &dyn Fn(&mut Json)) {
    let is_oci = dir.join("oci-layout").exists();
    if !is_oci {
        let list = load(&dir.join("manifest.json"));
        let config = dir.join(list[0]["Config"].as_str().unwrap());
        let mut json = Json { index: list.clone(), manifest: list, config: load(&config) };
        change(&mut json);
        std::fs::write(config, json.config.to_string()).unwrap();
        std::fs::write(dir.join("manifest.json"), json.manifest.to_string()).unwrap();
        return;
    }
    let index = load(&dir.join("index.json"));
    let manifest = load(&dir.join(blob(&index["manifests"][0])));
    let config = load(&dir.join(blob(&manifest["config"])));
    let mut json = Json { index, manifest, config };
    let put = |value: &Value, descriptor: &mut Value| {
        let bytes = value.to_string();
        descriptor["digest"] = format!("sha256:{}", digest_of(bytes.as_bytes())).into();
        descriptor["size"] = bytes.len().into();
        std::fs::write(dir.join(blob(descriptor)), bytes).unwrap();
    };
    put(&json.config, &mut json.manifest["config"]);
    put(&json.manifest, &mut json.index["manifests"][0]);
    let before = json.config.clone();
    change(&mut json);
    if json.config != before {
        put(&json.config, &mut json.manifest["config"]);
    }
    if json.index["manifests"][0].get("changed").is_none() {
        put(&json.manifest, &mut json.index["manifests"][0]);
    }
    std::fs::write(dir.join("index.json"), json.index.to_string()).unwrap();
}

type Fault = (&'static str, &'static dyn Fn(&mut Json), &'static str);

const FAULTS: [Fault; 16] = [
    (
        "oci",
        &|json| json.manifest["layers"][1]["size"] = 7.into(),
        "states is not valid: 7, but it has",
    ),
    ("oci", &|json| json.manifest["layers"][1]["size"] = "7".into(), "states"),
    ("oci", &|json| json.manifest["layers"][1]["size"] = (-1).into(), "states"),
    ("oci", &|json| json.manifest["config"]["size"] = 7.into(), "states"),
    ("oci", &|json| json.index["manifests"][0] = wrong(&json.index["manifests"][0]), "states"),
    ("oci", &|json| drop(json.manifest["config"].take()), "the manifest's config is missing"),
    ("oci", &|json| drop(json.diff_ids().pop()), "2 digests for 3 layers"),
    ("oci", &|json| json.diff_ids().push("sha256:".into()), "4 digests for 3 layers"),
    ("oci", &|json| drop(json.config["rootfs"].take()), "0 digests for 3 layers"),
    ("oci", &|json| json.diff_ids()[0] = "sha512:00".into(), "'sha512:00' is not a sha256"),
    ("oci", &|json| json.diff_ids().swap(0, 1), "has the digest"),
    ("docker", &|json| drop(json.manifest[0]["Config"].take()), "the image's Config is missing"),
    ("docker", &|json| drop(json.diff_ids().pop()), "2 digests for 3 layers"),
    ("docker", &|json| json.diff_ids()[2] = "sha512:00".into(), "'sha512:00' is not a sha256"),
    ("docker", &|json| json.manifest[0]["Layers"][0] = "none.tar".into(), "none.tar is missing"),
    ("crane", &|json| json.config["changed"] = 1.into(), "has the digest"),
];

fn wrong(descriptor: &Value) -> Value {
    let mut descriptor = descriptor.clone();
    descriptor["size"] = 7.into();
    descriptor["changed"] = true.into();
    descriptor
}

#[test]
fn what_an_image_states_is_verified() {
    let dir = scratch();
    layers(dir.path());
    layout(dir.path());
    docker(dir.path());
    crane(dir.path());
    let build = |path: &str| {
        let source = Source::detect(dir.path().join(path).to_str().unwrap()).unwrap();
        try_build(&dir.path().join("a.img"), Builder::new().source(source))
    };
    let changed = |kind: &str, with: &dyn Fn(&mut Json)| {
        shell(dir.path(), &format!("rm -rf bad; cp -r {kind} bad"));
        change(&dir.path().join("bad"), with);
        shell(dir.path(), "tar --force-local -cf bad.tar -C bad .");
    };
    changed("oci", &|json| json.config["changed"] = 1.into());
    build("bad.tar").expect("a change that leaves the image valid");
    for (number, (kind, fault, reason)) in FAULTS.into_iter().enumerate() {
        changed(kind, fault);
        let paths: &[&str] = if kind == "oci" { &["bad", "bad.tar"] } else { &["bad.tar"] };
        for path in paths {
            let error = build(path).unwrap_err().to_string();
            assert!(error.contains(reason), "{kind}, fault {number}: {error}");
        }
    }
}

#[test]
fn one_of_several_platforms_under_a_name_is_chosen() {
    let dir = scratch();
    layers(dir.path());
    layout(dir.path());
    let index = dir.path().join("oci/index.json");
    let mut json = load(&index);
    let first = json["manifests"][0].clone();
    let mut bytes = std::fs::read(dir.path().join("oci").join(blob(&first))).unwrap();
    bytes.push(b' ');
    let digest = digest_of(&bytes);
    std::fs::write(dir.path().join("oci/blobs/sha256").join(&digest), &bytes).unwrap();
    let mut second = first.clone();
    second["digest"] = format!("sha256:{digest}").into();
    second["size"] = bytes.len().into();
    json["manifests"] = json!([first, second]);
    for (at, variant) in [(0, None), (1, Some("v3"))] {
        json["manifests"][at]["platform"] = json!({ "os": "linux", "architecture": "amd64" });
        if let Some(variant) = variant {
            json["manifests"][at]["platform"]["variant"] = variant.into();
        }
    }
    std::fs::write(index, json.to_string()).unwrap();
    let built = |reference: &str| {
        let source = Source::container(dir.path().join("oci"), Some(reference.into()));
        try_build(&dir.path().join("p.img"), Builder::new().source(source))
    };
    let error = built("v1").expect_err("two of one name").to_string();
    assert!(error.contains("from v1@linux/amd64, v1@linux/amd64/v3"), "{error}");
    for chosen in ["v1@linux/amd64", "v1@linux/amd64/v3", "@linux/amd64/v3"] {
        built(chosen).unwrap_or_else(|error| panic!("{chosen}: {error}"));
    }
    for absent in ["v1@linux/arm64", "v2@linux/amd64"] {
        let error = built(absent).expect_err(absent).to_string();
        assert!(error.contains(absent), "{error}");
    }
    // An index that states no platform does not say that it has this one.
    json["manifests"] = json!([first]);
    json["manifests"][0].as_object_mut().unwrap().remove("platform");
    std::fs::write(dir.path().join("oci/index.json"), json.to_string()).unwrap();
    let error = built("v1@linux/arm64").expect_err("no platform").to_string();
    assert!(error.contains("v1@linux/arm64"), "{error}");
    built("v1").unwrap();
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
