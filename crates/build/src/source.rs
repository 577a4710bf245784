//! The sources from which images are built.

use crate::apply::{self, Whiteouts};
use crate::container::{self, Layer, Stream};
use crate::error::{Cause, Error, Result};
use crate::host;
use crate::pipeline::Pipeline;
use crate::progress::Counted;
use crate::tree::Tree;
use crate::unpack::{Wanted, with_unpacked};
use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// A source from which an image is built.
pub struct Source(Kind);

enum Kind {
    Directory(PathBuf),
    Tar(PathBuf),
    /// Standard input: a tar or an archive of a container image.
    Input,
    Stream(Box<dyn Read + Send>),
    Container(PathBuf, Option<String>),
}

impl Source {
    /// Returns a directory of the host as a source. The root of the image gets the directory's own
    /// attributes.
    pub fn directory(path: impl Into<PathBuf>) -> Source {
        Source(Kind::Directory(path.into()))
    }

    /// Returns a tar as a source. The tar may be compressed by gzip, zstd or xz; "-" is standard
    /// input.
    pub fn tar(path: impl Into<PathBuf>) -> Source {
        Source(Kind::Tar(path.into()))
    }

    /// Returns a tar from a stream as a source. The tar may be compressed.
    pub fn stream(input: impl Read + Send + 'static) -> Source {
        Source(Kind::Stream(Box::new(input)))
    }

    /// Returns a container image as a source: an OCI layout, in a directory or a tar, or an archive
    /// of `docker save`. If the layout has several images, `reference` selects one.
    pub fn container(path: impl Into<PathBuf>, reference: Option<String>) -> Source {
        Source(Kind::Container(path.into(), reference))
    }

    /// Returns the source to which a name on the command line refers. A prefix "dir:", "tar:",
    /// "oci:" or "docker:" before a path gives the kind of source. Without a prefix, the kind is
    /// detected from the file's contents, or from the start of standard input, which is "-".
    ///
    /// # Errors
    /// If the file does not exist or cannot be read.
    pub fn detect(name: &str) -> Result<Source> {
        if let Some(path) = name.strip_prefix("dir:") {
            return Ok(Source::directory(path));
        }
        if let Some(path) = name.strip_prefix("tar:") {
            return Ok(Source::tar(path));
        }
        for prefix in ["oci:", "docker:"] {
            let Some(rest) = name.strip_prefix(prefix) else { continue };
            let by_name = rest.split_once(':').filter(|(path, _)| {
                !Path::new(rest).exists() && (*path == "-" || Path::new(path).exists())
            });
            return Ok(match by_name {
                Some((path, reference)) => Source::container(path, Some(reference.into())),
                None => Source::container(rest, None),
            });
        }
        if name == "-" {
            return Ok(Source(Kind::Input));
        }
        let path = Path::new(name);
        let kind = path.metadata().map_err(|error| Error::new(name, error))?.file_type();
        if kind.is_dir() {
            let is_layout = path.join("oci-layout").is_file() && path.join("index.json").is_file();
            return Ok(match is_layout {
                true => Source::container(path, None),
                false => Source::directory(path),
            });
        }
        let is_container =
            kind.is_file() && container::is_in(path).map_err(|error| error.within(&name))?;
        Ok(match is_container {
            true => Source::container(path, None),
            false => Source::tar(path),
        })
    }

    /// Returns the path if the source is a directory.
    pub(crate) fn as_directory(&self) -> Option<PathBuf> {
        match &self.0 {
            Kind::Directory(path) => Some(path.clone()),
            _ => None,
        }
    }

    /// Returns the length of the source if it is a tar in a file.
    pub(crate) fn size(&self) -> Option<u64> {
        let Kind::Tar(path) = &self.0 else { return None };
        let name = if path == Path::new("-") { Path::new("/dev/stdin") } else { path };
        name.metadata().ok().filter(Metadata::is_file).map(|file| file.len())
    }

    /// Adds all entries of the source to the tree.
    pub(crate) fn add_to(
        self,
        tree: &mut Tree,
        pipeline: &Pipeline<'_>,
        threads: usize,
        whiteouts: Whiteouts,
    ) -> Result<()> {
        let shown = self.to_string();
        let within = |error: Error| error.within(&shown);
        match self.0 {
            Kind::Directory(path) => {
                pipeline
                    .run(threads, |feeder| host::directory(&path, tree, feeder))
                    .map_err(|error| host::name_all_unreadable(&path, error))?;
            }
            Kind::Tar(path) if path == Path::new("-") => {
                // Standard input is not locked here, because another thread may read it, and the
                // lock cannot be sent to that thread.
                stream(io::stdin(), tree, pipeline, threads, whiteouts).map_err(within)?;
            }
            Kind::Tar(path) => {
                let failed = |error| Error::new(path.display(), error);
                let file = File::open(&path).map_err(failed)?;
                // The end of a pipe is waited for; such a device may have none.
                if file.metadata().map_err(failed)?.file_type().is_char_device() {
                    let found = "it is a character device";
                    return Err(Error::new(path.display(), Cause::NotTar { found }));
                }
                stream(file, tree, pipeline, threads, whiteouts).map_err(within)?;
            }
            Kind::Input => input(tree, pipeline, threads, whiteouts).map_err(within)?,
            Kind::Stream(input) => {
                stream(input, tree, pipeline, threads, whiteouts).map_err(within)?;
            }
            Kind::Container(path, reference) => {
                let layers = container::layers(&path, reference.as_deref()).map_err(within)?;
                add_layers(layers, tree, pipeline, threads).map_err(within)?;
            }
        }
        finish(tree, pipeline);
        Ok(())
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Tar(path) | Kind::Container(path, _) if path == Path::new("-") => {
                write!(f, "standard input")
            }
            Kind::Input => write!(f, "standard input"),
            Kind::Directory(path) | Kind::Tar(path) | Kind::Container(path, _) => {
                write!(f, "{}", path.display())
            }
            Kind::Stream(_) => write!(f, "stream"),
        }
    }
}

fn stream(
    input: impl Read + Send,
    tree: &mut Tree,
    pipeline: &Pipeline<'_>,
    threads: usize,
    whiteouts: Whiteouts,
) -> Result<()> {
    let input = Counted { inner: input, meter: pipeline.meter() };
    with_unpacked(input, Wanted::default(), |input| {
        pipeline.run(threads, |feeder| apply::archive(input, tree, feeder, whiteouts))
    })
    .map(drop)
}

/// Adds what standard input holds. Unlike other streams, it is counted as it is unpacked.
fn input(
    tree: &mut Tree,
    pipeline: &Pipeline<'_>,
    threads: usize,
    whiteouts: Whiteouts,
) -> Result<()> {
    let add = |input: &mut dyn Read| match container::of_stream(input)? {
        Stream::Image(layers) => add_layers(layers, tree, pipeline, threads),
        Stream::Tar(inner) => {
            let input = Counted { inner, meter: pipeline.meter() };
            pipeline.run(threads, |feeder| apply::archive(input, tree, feeder, whiteouts))
        }
    };
    with_unpacked(io::stdin(), Wanted::default(), add).map(drop)
}

fn add_layers(
    layers: Vec<Layer>,
    tree: &mut Tree,
    pipeline: &Pipeline<'_>,
    threads: usize,
) -> Result<()> {
    let bytes = layers.iter().map(|layer| layer.bytes);
    pipeline.meter().expect(bytes.fold(0, u64::saturating_add));
    layers.into_iter().try_for_each(|layer| add_layer(layer, tree, pipeline, threads))
}

fn add_layer(layer: Layer, tree: &mut Tree, pipeline: &Pipeline<'_>, threads: usize) -> Result<()> {
    let Layer { name, packed, unpacked, input, .. } = layer;
    let wanted = Wanted { packed: packed.is_some(), unpacked: true };
    let input = Counted { inner: input, meter: pipeline.meter() };
    let ((), digests) = with_unpacked(input, wanted, |input| {
        pipeline.run(threads, |feeder| apply::archive(input, tree, feeder, Whiteouts::Removals))
    })
    .map_err(|error| error.within(&name))?;
    if let Some(packed) = packed {
        container::check(&name, &packed, digests.packed)?;
    }
    container::check(&name, &unpacked, digests.unpacked)?;
    finish(tree, pipeline);
    Ok(())
}

/// Ends a layer: a source, or a layer of a container image. Frees the blocks of the files that the
/// layer removed.
fn finish(tree: &mut Tree, pipeline: &Pipeline<'_>) {
    pipeline.release(&tree.take_removed());
    tree.next_layer();
}
