//! Container images: OCI image layouts, as directories or tars, and the archives of `docker save`.
//!
//! Formats: the OCI image specification 1.1 ("Image Layout", "Image Manifest", "Layer"), and the
//! Docker image specification 1.2.

use crate::error::{Cause, Error, Result};
use crate::tar::{Body, Reader};
use crate::unpack::{Packing, with_unpacked};
use crate::{entry::Kind, unpack::Wanted};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The largest accepted manifest or configuration, in bytes.
const MOST_JSON: u64 = 16 << 20;

/// The list of images in an archive of `docker save`.
const DOCKER_MANIFEST: &str = "manifest.json";

/// A layer that can be read.
pub(crate) struct Layer {
    pub(crate) name: String,
    /// The digest that the manifest states for the stored layer.
    pub(crate) packed: Option<String>,
    /// The digest that the configuration states for the unpacked layer.
    pub(crate) unpacked: Option<String>,
    /// The length of the stored layer in bytes.
    pub(crate) bytes: u64,
    pub(crate) input: Box<dyn Read + Send>,
}

/// The files of an image.
enum Files {
    Directory(PathBuf),
    Archive { file: Arc<File>, places: BTreeMap<String, Place> },
}

/// A file in an archive.
enum Place {
    Data { offset: u64, size: u64 },
    Symlink(String),
}

/// Returns the layers of an image, the lowest first.
pub(crate) fn layers(path: &Path, reference: Option<&str>) -> Result<Vec<Layer>> {
    let files = match path.is_dir() {
        true => Files::Directory(path.into()),
        false => {
            let file = match path == Path::new("-") {
                true => spool(io::stdin())?,
                false => plain(File::open(path).map_err(|error| Error::new("", error))?)?,
            };
            Files::archive(file)?
        }
    };
    match ["oci-layout", "index.json"].into_iter().find(|name| !files.has(name)) {
        None => files.oci_layers(reference),
        Some(_) if files.has(DOCKER_MANIFEST) => files.docker_layers(reference),
        Some(name) if path.is_dir() || files.has("oci-layout") || files.has("index.json") => {
            Err(missing(&format!(
                "the file {name} of an OCI layout (or {DOCKER_MANIFEST} of docker save)"
            )))
        }
        Some(_) => {
            let detail = format!(
                "it has neither oci-layout and index.json nor {DOCKER_MANIFEST}; \
                 tar:PATH reads a plain tar, tar:- standard input"
            );
            Err(Error::new("", Cause::Invalid { what: "the OCI or docker archive", detail }))
        }
    }
}

/// Returns whether a tar whose first entry has this name may be a container image.
fn may_begin_with(name: &[u8]) -> bool {
    let name = name.strip_prefix(b"./").unwrap_or(name);
    let top = name.split(|byte| *byte == b'/').next().unwrap_or_default();
    let is_hex = |bytes: &[u8]| bytes.len() == 64 && bytes.iter().all(u8::is_ascii_hexdigit);
    matches!(top, b"blobs" | b"oci-layout" | b"index.json" | b"manifest.json" | b"repositories")
        || is_hex(
            [&b".json"[..], b".tar"]
                .into_iter()
                .find_map(|end| top.strip_suffix(end))
                .unwrap_or(top),
        )
}

/// Returns whether the file is a tar that holds a container image.
pub(crate) fn is_in(path: &Path) -> Result<bool> {
    let failed = |error| Error::new("", Cause::Io(error));
    let open = || File::open(path).map_err(failed);
    let (may_be, _) = with_unpacked(open()?, Wanted::default(), |input| {
        let mut reader = Reader::new(input);
        while let Some(item) = reader.next()? {
            if !matches!(item.path.as_slice(), b"./" | b".") {
                return Ok(may_begin_with(&item.path));
            }
        }
        Ok(false)
    })?;
    if !may_be {
        return Ok(false);
    }
    let files = Files::archive(plain(open()?)?)?;
    Ok(files.has(DOCKER_MANIFEST) || files.has("index.json") && files.has("oci-layout"))
}

/// Returns the archive in uncompressed form, so that its parts can be read in any order.
fn plain(mut file: File) -> Result<File> {
    let mut start = [0; 6];
    let read = file.read_at(&mut start, 0).map_err(|error| Error::new("", error))?;
    if Packing::of(start.get(..read).unwrap_or_default()) == Packing::None {
        return Ok(file);
    }
    file.rewind().map_err(|error| Error::new("", error))?;
    spool(file)
}

/// Copies a stream into a temporary file without a name.
fn spool(input: impl Read + Send) -> Result<File> {
    let failed = |error| Error::new(std::env::temp_dir().display(), Cause::Io(error));
    let mut file = tempfile::tempfile().map_err(failed)?;
    with_unpacked(input, Wanted::default(), |input| {
        io::copy(input, &mut file).map_err(|error| Error::new("", error))
    })?;
    file.flush().and_then(|()| file.rewind()).map_err(failed)?;
    Ok(file)
}

impl Files {
    fn archive(file: File) -> Result<Files> {
        let file = Arc::new(file);
        let mut places = BTreeMap::new();
        let size = file.metadata().map_err(|error| Error::new("", error))?.len();
        let mut reader = Reader::new(Part { file: file.clone(), at: 0, end: size });
        while let Some(item) = reader.next()? {
            let name = String::from_utf8_lossy(&item.path);
            let name = name.strip_prefix("./").unwrap_or(&name).to_owned();
            let place = match item.body {
                Body::File(Kind::Regular(size)) => Place::Data { offset: reader.input().at, size },
                Body::File(Kind::Symlink(target)) => {
                    Place::Symlink(String::from_utf8_lossy(&target).into_owned())
                }
                _ => continue,
            };
            places.insert(name, place);
            reader.seek_past(|part, len| part.at = part.at.saturating_add(len).min(part.end));
        }
        Ok(Files::Archive { file, places })
    }

    fn has(&self, name: &str) -> bool {
        match self {
            Files::Directory(path) => path.join(name).is_file(),
            Files::Archive { places, .. } => places.contains_key(name),
        }
    }

    /// Returns a file and its length.
    fn open(&self, name: &str) -> Result<(Box<dyn Read + Send>, u64)> {
        let missing = || Error::new("", Cause::Missing { what: name.into() });
        match self {
            Files::Directory(path) => {
                let outside = Path::new(name)
                    .components()
                    .any(|part| !matches!(part, std::path::Component::Normal(_)));
                if outside {
                    return Err(Error::new(name, Cause::Outside));
                }
                let open = File::open(path.join(name));
                let file = open.map_err(|error| match error.kind() {
                    io::ErrorKind::NotFound => missing(),
                    _ => Error::new(name, error),
                })?;
                let bytes = file.metadata().map_err(|error| Error::new(name, error))?.len();
                Ok((Box::new(file), bytes))
            }
            Files::Archive { file, places } => {
                let mut name = name.to_owned();
                for _ in 0..8 {
                    match places.get(&name).ok_or_else(missing)? {
                        Place::Data { offset, size } => {
                            let end = offset.saturating_add(*size);
                            let part = Part { file: file.clone(), at: *offset, end };
                            return Ok((Box::new(part), *size));
                        }
                        Place::Symlink(target) => name = joined(&name, target),
                    }
                }
                Err(missing())
            }
        }
    }

    fn json(&self, name: &str, digest: Option<&str>) -> Result<Value> {
        let mut bytes = Vec::new();
        let mut input = self.open(name)?.0.take(MOST_JSON);
        input.read_to_end(&mut bytes).map_err(|error| Error::new(name, error))?;
        if let Some(expected) = digest {
            let mut digest = sha2::Sha256::default();
            sha2::Digest::update(&mut digest, &bytes);
            check(name, Some(expected), Some(crate::unpack::hex(digest)))?;
        }
        serde_json::from_slice(&bytes).map_err(|error| {
            Error::new(name, Cause::Invalid { what: "JSON", detail: error.to_string() })
        })
    }

    /// Reads the blob to which a descriptor refers.
    fn blob(&self, descriptor: &Value) -> Result<Value> {
        let digest = digest_of(descriptor)?;
        self.json(&format!("blobs/sha256/{digest}"), Some(&digest))
    }

    fn oci_layers(&self, reference: Option<&str>) -> Result<Vec<Layer>> {
        let mut manifest = self.json("index.json", None)?;
        for _ in 0..4 {
            let Some(manifests) = manifest.get("manifests").and_then(Value::as_array) else {
                break;
            };
            manifest = self.blob(choose(manifests, reference)?)?;
        }
        let layers = manifest.get("layers").and_then(Value::as_array);
        let layers = layers.ok_or_else(|| missing("the list of layers in the manifest"))?;
        layers
            .iter()
            .map(|layer| {
                let digest = digest_of(layer)?;
                let name = format!("blobs/sha256/{digest}");
                let (input, bytes) = self.open(&name)?;
                Ok(Layer { name, packed: Some(digest), unpacked: None, bytes, input })
            })
            .collect()
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
        let config = config.map(|name| self.json(name, None)).transpose()?.unwrap_or_default();
        let diff_ids = config.pointer("/rootfs/diff_ids").and_then(Value::as_array);
        let mut diff_ids = diff_ids.into_iter().flatten().filter_map(Value::as_str);
        let layers = image.get("Layers").and_then(Value::as_array);
        let layers = layers.ok_or_else(|| missing("the list of layers"))?;
        layers
            .iter()
            .map(|name| {
                let name = name.as_str().ok_or_else(|| missing("the name of a layer"))?;
                let unpacked = diff_ids.next().and_then(|id| id.strip_prefix("sha256:"));
                let (input, bytes) = self.open(name)?;
                Ok(Layer {
                    name: name.into(),
                    packed: None,
                    unpacked: unpacked.map(Into::into),
                    bytes,
                    input,
                })
            })
            .collect()
    }
}

/// Fails if the digest `found` differs from `expected`. If either is missing, nothing is checked.
pub(crate) fn check(name: &str, expected: Option<&str>, found: Option<String>) -> Result<()> {
    match (expected, found) {
        (Some(expected), Some(found)) if *expected != found => {
            Err(Error::new(name, Cause::Digest { expected: expected.into(), found }))
        }
        _ => Ok(()),
    }
}

fn missing(what: &str) -> Error {
    Error::new("", Cause::Missing { what: what.into() })
}

fn ambiguous(names: &[String]) -> Error {
    let detail = format!("it has several; choose by PATH:NAME from {}", names.join(", "));
    Error::new("", Cause::Invalid { what: "the choice of an image", detail })
}

/// Returns the hexadecimal digest in a descriptor.
fn digest_of(descriptor: &Value) -> Result<String> {
    let digest = descriptor.get("digest").and_then(Value::as_str).unwrap_or_default();
    let hex = digest
        .strip_prefix("sha256:")
        .filter(|hex| hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
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

/// Chooses the manifest with the name `reference`. Names are not compared if `reference` is `None`
/// or no manifest has a name. If several manifests are left, chooses the one for this machine.
fn choose<'m>(manifests: &'m [Value], reference: Option<&str>) -> Result<&'m Value> {
    let mut found: Vec<&Value> =
        manifests.iter().filter(|manifest| platform(manifest, "os") != Some("unknown")).collect();
    if let Some(wanted) = reference
        && found.iter().any(|manifest| name(manifest).is_some())
    {
        found.retain(|manifest| name(manifest) == Some(wanted));
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
        [] => Err(missing(&format!("the image '{}'", reference.unwrap_or("latest")))),
        [first, rest @ ..]
            if rest.iter().all(|other| other.get("digest") == first.get("digest")) =>
        {
            Ok(first)
        }
        _ => {
            let names: Vec<String> = found.iter().filter_map(|m| name(m)).map(Into::into).collect();
            Err(ambiguous(&names))
        }
    }
}

/// Returns the name to which a symbolic link at `name` refers.
fn joined(name: &str, target: &str) -> String {
    let mut parts: Vec<&str> = name.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// A part of a file. Reading a part does not use the file's position, so several parts can be read
/// at once.
struct Part {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl Read for Part {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.end.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let len = buf.len().min(most);
        let read = self.file.read_at(buf.get_mut(..len).unwrap_or_default(), self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}
