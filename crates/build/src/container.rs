//! Container images: OCI image layouts, as directories or tars, and the archives of `docker save`.
//!
//! Formats: the OCI image specification 1.1 ("Image Layout", "Image Manifest", "Layer"), and the
//! Docker image specification 1.2.

mod files;

use crate::error::{Cause, Error, Result};
use crate::unpack::hex;
use files::{DOCKER_MANIFEST, Files, is_sha256};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::io::{Cursor, Read};
use std::path::Path;

/// The largest accepted manifest or configuration, in bytes.
const MOST_JSON: u64 = 16 << 20;

/// A layer that can be read.
pub(crate) struct Layer {
    pub(crate) name: String,
    /// The digest that the manifest, or the name in an archive of docker, states for the stored
    /// layer.
    pub(crate) packed: Option<String>,
    /// The digest that the configuration states for the unpacked layer.
    pub(crate) unpacked: String,
    /// The length of the stored layer in bytes.
    pub(crate) bytes: u64,
    pub(crate) input: Box<dyn Read + Send>,
}

/// Returns whether the file is a tar that holds a container image.
pub(crate) fn is_in(path: &Path) -> Result<bool> {
    Ok(files::may_be_at(path)? && Files::at(path)?.is_image())
}

/// Returns whether the directory is an image as skopeo(1) writes it to `dir:PATH`.
pub(crate) fn is_of_skopeo(path: &Path) -> bool {
    Files::Directory(path.into()).is_of_skopeo()
}

/// Returns the layers of an image, the lowest first.
pub(crate) fn layers(path: &Path, reference: Option<&str>) -> Result<Vec<Layer>> {
    Files::at(path)?.layers(reference)
}

/// What a stream holds.
pub(crate) enum Stream<'r> {
    Tar(Box<dyn Read + 'r>),
    Image(Vec<Layer>),
}

/// Looks at the start of a stream. If it looks like that of a container image, copies the stream
/// into a temporary file.
pub(crate) fn of_stream<'r>(input: &'r mut dyn Read) -> Result<Stream<'r>> {
    let mut start = Vec::new();
    let read = input.take(files::START).read_to_end(&mut start);
    read.map_err(|error| Error::new("", error))?;
    let may_be = files::may_begin_with(&start);
    let mut whole = Cursor::new(start).chain(input);
    if !may_be {
        return Ok(Stream::Tar(Box::new(whole)));
    }
    let file = files::copied(&mut whole)?;
    let again = file.try_clone().map_err(|error| Error::new("", error))?;
    let files = Files::archive(file)?;
    Ok(match files.is_image() {
        true => Stream::Image(files.layers(None)?),
        false => Stream::Tar(Box::new(again)),
    })
}

impl Files {
    fn is_image(&self) -> bool {
        self.has("index.json") && self.has("oci-layout") || self.lists_images()
    }

    /// Returns whether these are the files of skopeo's `dir:`: a manifest beside its blobs, whose
    /// names are the hexadecimal digits of their digests.
    fn is_of_skopeo(&self) -> bool {
        let mut start = Vec::new();
        let version = self.open("version").map(|(input, _)| input.take(64).read_to_end(&mut start));
        version.is_ok_and(|read| read.is_ok())
            && start.starts_with(b"Directory Transport Version: ")
            && self.has(DOCKER_MANIFEST)
    }

    fn layers(&self, reference: Option<&str>) -> Result<Vec<Layer>> {
        if self.is_of_skopeo() {
            return self.layers_of(self.json(DOCKER_MANIFEST, None)?, reference);
        }
        let missing_file = ["oci-layout", "index.json"].into_iter().find(|name| !self.has(name));
        let Some(name) = missing_file else {
            return self.layers_of(self.json("index.json", None)?, reference);
        };
        if self.has(DOCKER_MANIFEST) {
            return self.docker_layers(reference);
        }
        if matches!(self, Files::Directory(_)) || self.has("oci-layout") || self.has("index.json") {
            return Err(missing(&format!(
                "the file {name} of an OCI layout (or {DOCKER_MANIFEST} of docker save)"
            )));
        }
        let detail = format!(
            "it has neither oci-layout and index.json nor {DOCKER_MANIFEST}; \
             tar:PATH reads a plain tar, tar:- standard input"
        );
        Err(Error::new("", Cause::Invalid { what: "the OCI or docker archive", detail }))
    }

    /// Returns whether the file `manifest.json` is that of `docker save`, and not one of a web
    /// application. One that cannot be read counts too, so that its fault is told.
    fn lists_images(&self) -> bool {
        let is_image = |image: &Value| image.get("Layers").or(image.get("Config")).is_some();
        let is_list = |list: Value| list.as_array().is_some_and(|list| list.iter().all(is_image));
        self.has(DOCKER_MANIFEST) && self.json(DOCKER_MANIFEST, None).map_or(true, is_list)
    }

    fn json(&self, name: &str, digest: Option<&str>) -> Result<Value> {
        let mut bytes = Vec::new();
        let mut input = self.open(name)?.0.take(MOST_JSON);
        input.read_to_end(&mut bytes).map_err(|error| Error::new(name, error))?;
        if let Some(expected) = digest {
            check(name, expected, Some(hex(Sha256::new().chain_update(&bytes))))?;
        }
        serde_json::from_slice(&bytes).map_err(|error| {
            Error::new(name, Cause::Invalid { what: "JSON", detail: error.to_string() })
        })
    }

    /// Reads the blob to which a descriptor refers.
    fn blob(&self, descriptor: &Value) -> Result<Value> {
        let blob = self.open_blob(descriptor)?;
        self.json(&blob.name, Some(&blob.digest))
    }

    /// Opens the blob to which a descriptor refers, and checks its size.
    fn open_blob(&self, descriptor: &Value) -> Result<Blob> {
        let digest = digest_of(descriptor.get("digest"))?;
        let mut name = format!("blobs/sha256/{digest}");
        let of_skopeo = [digest.clone(), format!("{digest}.manifest.json")];
        if !self.has(&name) {
            name = of_skopeo.into_iter().find(|name| self.has(name)).unwrap_or(name);
        }
        let (input, bytes) = self.open(&name)?;
        match descriptor.get("size") {
            Some(size) if size.as_u64() != Some(bytes) => {
                let detail = format!("{size}, but it has {bytes} bytes");
                let what = "the size that its descriptor states";
                Err(Error::new(name, Cause::Invalid { what, detail }))
            }
            _ => Ok(Blob { name, digest, bytes, input }),
        }
    }

    /// Returns the layers of the image with this manifest, or of the one that `reference` chooses
    /// from this list of manifests.
    fn layers_of(&self, mut manifest: Value, reference: Option<&str>) -> Result<Vec<Layer>> {
        for _ in 0..4 {
            let Some(manifests) = manifest.get("manifests").and_then(Value::as_array) else {
                break;
            };
            manifest = self.blob(choose(manifests, reference)?)?;
        }
        let layers = manifest.get("layers").and_then(Value::as_array);
        let layers = layers.ok_or_else(|| missing("the list of layers in the manifest"))?;
        let config = manifest.get("config").filter(|config| config.is_object());
        let config = config.ok_or_else(|| missing("the manifest's config"))?;
        let diff_ids = diff_ids(&self.blob(config)?, layers.len())?;
        let layer = |(layer, unpacked)| {
            let Blob { name, digest, bytes, input } = self.open_blob(layer)?;
            Ok(Layer { name, packed: Some(digest), unpacked, bytes, input })
        };
        layers.iter().zip(diff_ids).map(layer).collect()
    }

    fn docker_layers(&self, reference: Option<&str>) -> Result<Vec<Layer>> {
        let manifest = self.json(DOCKER_MANIFEST, None)?;
        let images = manifest.as_array().ok_or_else(|| missing("the list of images"))?;
        let tags = |image: &Value| -> Vec<String> {
            let tags = image.get("RepoTags").and_then(Value::as_array);
            tags.into_iter().flatten().filter_map(Value::as_str).map(Into::into).collect()
        };
        let image = match (reference, images.as_slice()) {
            (None, [only]) => only,
            (None, _) => {
                let all: Vec<String> = images.iter().flat_map(tags).collect();
                return Err(ambiguous(&all));
            }
            (Some(wanted), images) => images
                .iter()
                .find(|image| tags(image).iter().any(|tag| tag == wanted))
                .ok_or_else(|| missing(&format!("the image '{wanted}'")))?,
        };
        let config = image.get("Config").and_then(Value::as_str);
        let config = config.ok_or_else(|| missing("the image's Config"))?;
        let digest = named_digest(config).or(config.strip_suffix(".json"));
        let config = self.json(config, digest.filter(|digest| is_sha256(digest)))?;
        let layers = image.get("Layers").and_then(Value::as_array);
        let layers = layers.ok_or_else(|| missing("the list of layers"))?;
        let diff_ids = diff_ids(&config, layers.len())?;
        let layer = |(name, unpacked): (&Value, String)| {
            let name = name.as_str().ok_or_else(|| missing("the name of a layer"))?;
            let packed = named_digest(name).filter(|digest| is_sha256(digest)).map(Into::into);
            let (input, bytes) = self.open(name)?;
            Ok(Layer { name: name.into(), packed, unpacked, bytes, input })
        };
        layers.iter().zip(diff_ids).map(layer).collect()
    }
}

/// A blob of an OCI layout.
struct Blob {
    name: String,
    digest: String,
    bytes: u64,
    input: Box<dyn Read + Send>,
}

/// Returns the digests of the unpacked layers, which the configuration of an image states.
fn diff_ids(config: &Value, layers: usize) -> Result<Vec<String>> {
    let ids = config.pointer("/rootfs/diff_ids").and_then(Value::as_array);
    let ids = ids.map(Vec::as_slice).unwrap_or_default();
    if ids.len() != layers {
        let detail = format!("{} digests for {layers} layers", ids.len());
        let what = "the list rootfs.diff_ids of the configuration";
        return Err(Error::new("", Cause::Invalid { what, detail }));
    }
    ids.iter().map(|id| digest_of(Some(id))).collect()
}

/// Returns the digest in the name of a file in an archive of docker. Names of the form `HEX.tar` or
/// `HEX/layer.tar` are not always digests of the content.
fn named_digest(name: &str) -> Option<&str> {
    name.strip_prefix("sha256:").or_else(|| name.strip_prefix("blobs/sha256/"))
}

/// Fails if the digest `found` differs from `expected`, or could not be computed.
pub(crate) fn check(name: &str, expected: &str, found: Option<String>) -> Result<()> {
    let found = found.unwrap_or_default();
    match expected == found {
        true => Ok(()),
        false => Err(Error::new(name, Cause::Digest { expected: expected.into(), found })),
    }
}

fn missing(what: &str) -> Error {
    Error::new("", Cause::Missing { what: what.into() })
}

fn ambiguous(names: &[String]) -> Error {
    let detail = format!("it has several; choose by PATH:NAME from {}", names.join(", "));
    Error::new("", Cause::Invalid { what: "the choice of an image", detail })
}

/// Returns the hexadecimal digits of a digest.
fn digest_of(digest: Option<&Value>) -> Result<String> {
    let digest = digest.and_then(Value::as_str).unwrap_or_default();
    let hex = digest.strip_prefix("sha256:").filter(|hex| is_sha256(hex));
    let wrong = || {
        let detail = format!("'{digest}' is not a sha256");
        Error::new("", Cause::Invalid { what: "a digest", detail })
    };
    hex.map(Into::into).ok_or_else(wrong)
}

fn name(manifest: &Value) -> Option<&str> {
    manifest.pointer("/annotations/org.opencontainers.image.ref.name").and_then(Value::as_str)
}

fn platform<'m>(manifest: &'m Value, part: &str) -> Option<&'m str> {
    manifest.get("platform").and_then(|platform| platform.get(part)).and_then(Value::as_str)
}

/// Returns the platform of a manifest, such as "linux/arm/v7".
fn platform_of(manifest: &Value) -> Option<String> {
    let parts = ["os", "architecture", "variant"].map(|part| platform(manifest, part));
    let parts: Vec<&str> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("/"))
}

/// Returns whether a descriptor is that of a list of further manifests.
fn is_index(descriptor: &Value) -> bool {
    let media = descriptor.get("mediaType").and_then(Value::as_str).unwrap_or_default();
    media.contains("image.index.") || media.contains("manifest.list.")
}

/// Chooses the manifest that `reference` names, NAME, NAME@PLATFORM or @PLATFORM. Names are not
/// compared if `reference` has none or no manifest has one. A manifest without a platform is not
/// the one for PLATFORM, but an index may contain it. If several are left, chooses the one for this
/// machine.
fn choose<'m>(manifests: &'m [Value], reference: Option<&str>) -> Result<&'m Value> {
    let reference = reference.unwrap_or_default();
    let parts = reference.rsplit_once('@').filter(|(_, on)| !on.contains(':'));
    let (wanted, on) = parts.unwrap_or((reference, ""));
    let mut found: Vec<&Value> =
        manifests.iter().filter(|manifest| platform(manifest, "os") != Some("unknown")).collect();
    if !wanted.is_empty() && found.iter().any(|manifest| name(manifest).is_some()) {
        found.retain(|manifest| name(manifest) == Some(wanted));
    }
    if !on.is_empty() {
        found.retain(|manifest| match platform_of(manifest) {
            Some(platform) => platform == on,
            None => is_index(manifest),
        });
    }
    if found.len() > 1 {
        let here = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let ours = |manifest: &&Value| {
            platform(manifest, "os") == Some("linux")
                && platform(manifest, "architecture") == Some(here)
        };
        if found.iter().any(ours) {
            found.retain(ours);
        }
    }
    match found.as_slice() {
        [] => {
            let missed = if reference.is_empty() { "latest" } else { reference };
            Err(missing(&format!("the image '{missed}'")))
        }
        [first, rest @ ..]
            if rest.iter().all(|other| other.get("digest") == first.get("digest")) =>
        {
            Ok(first)
        }
        _ => {
            let shown = |manifest: &&Value| {
                let on = platform_of(manifest).map_or(String::new(), |on| format!("@{on}"));
                format!("{}{on}", name(manifest).unwrap_or(wanted))
            };
            Err(ambiguous(&found.iter().map(shown).collect::<Vec<_>>()))
        }
    }
}
