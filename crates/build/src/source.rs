//! The sources from which images are built.

use crate::apply::{self, Subtree, Whiteouts};
use crate::container::{self, Layer, Stream};
use crate::error::{Cause, Error, Result};
use crate::host;
use crate::pipeline::Pipeline;
use crate::progress::Counted;
use crate::tree::Tree;
use crate::unpack::{Wanted, with_unpacked};
use crate::view::HostView;
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
            return Ok(match is_layout || container::is_of_skopeo(path) {
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

    /// Adds all entries of the source.
    pub(crate) fn add_to(self, to: &mut Filler<'_, '_>) -> Result<()> {
        let shown = self.to_string();
        let within = |error: Error| error.within(&shown);
        match self.0 {
            Kind::Directory(path) => {
                to.refuse_subtree("directory").map_err(within)?;
                to.pipeline
                    .run(to.threads, |feeder| host::directory(&path, to.view, to.tree, feeder))
                    .map_err(|error| host::name_all_unreadable(&path, error))?;
            }
            Kind::Tar(path) if path == Path::new("-") => {
                // Standard input is not locked here, because another thread may read it, and the
                // lock cannot be sent to that thread.
                to.stream(io::stdin()).map_err(within)?;
            }
            Kind::Tar(path) => {
                let failed = |error| Error::new(path.display(), error);
                let file = File::open(&path).map_err(failed)?;
                // The end of a pipe is waited for; such a device may have none.
                if file.metadata().map_err(failed)?.file_type().is_char_device() {
                    let found = "it is a character device";
                    return Err(Error::new(path.display(), Cause::NotTar { found }));
                }
                to.stream(file).map_err(within)?;
            }
            Kind::Input => to.input().map_err(within)?,
            Kind::Stream(input) => to.stream(input).map_err(within)?,
            Kind::Container(path, reference) => {
                let layers = container::layers(&path, reference.as_deref()).map_err(within)?;
                to.layers(layers).map_err(within)?;
            }
        }
        to.end_layer();
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

/// Adds the entries of sources to a tree, and their data to the device.
pub(crate) struct Filler<'a, 'd> {
    pub(crate) tree: &'a mut Tree,
    pub(crate) pipeline: &'a Pipeline<'d>,
    pub(crate) threads: usize,
    pub(crate) whiteouts: Whiteouts,
    pub(crate) view: &'a HostView,
    pub(crate) subtree: &'a Subtree,
}

impl<'d> Filler<'_, 'd> {
    fn counted<R>(&self, inner: R) -> Counted<'d, R> {
        Counted { inner, meter: self.pipeline.meter }
    }

    fn archive(&mut self, input: impl Read, whiteouts: Whiteouts) -> Result<()> {
        let Filler { tree, pipeline, threads, subtree, .. } = self;
        pipeline.run(*threads, |feeder| apply::archive(input, tree, feeder, whiteouts, subtree))
    }

    fn stream(&mut self, input: impl Read + Send) -> Result<()> {
        let (input, whiteouts) = (self.counted(input), self.whiteouts);
        with_unpacked(input, Wanted::default(), |input| self.archive(input, whiteouts)).map(drop)
    }

    /// Adds what standard input holds. Unlike other streams, it is counted as it is unpacked.
    fn input(&mut self) -> Result<()> {
        let add = |input: &mut dyn Read| match container::of_stream(input)? {
            Stream::Image(layers) => self.layers(layers),
            Stream::Tar(inner) => self.archive(self.counted(inner), self.whiteouts),
        };
        with_unpacked(io::stdin(), Wanted::default(), add).map(drop)
    }

    fn refuse_subtree(&self, of: &str) -> Result<()> {
        let what = format!("a part (--root, --strip) of a {of}, which is no tar,");
        match self.subtree.is_whole() {
            true => Ok(()),
            false => Err(Error::new("", Cause::Unsupported { what })),
        }
    }

    fn layers(&mut self, layers: Vec<Layer>) -> Result<()> {
        self.refuse_subtree("container image")?;
        let bytes = layers.iter().map(|layer| layer.bytes);
        self.pipeline.meter.expect(bytes.fold(0, u64::saturating_add));
        layers.into_iter().try_for_each(|layer| self.layer(layer))
    }

    fn layer(&mut self, layer: Layer) -> Result<()> {
        let Layer { name, packed, unpacked, input, .. } = layer;
        let wanted = Wanted { packed: packed.is_some(), unpacked: true };
        let input = self.counted(input);
        let add = |input: &mut dyn Read| self.archive(input, Whiteouts::Removals);
        let added = with_unpacked(input, wanted, add);
        let ((), digests) = added.map_err(|error| error.within(&name))?;
        if let Some(packed) = packed {
            container::check(&name, &packed, digests.packed)?;
        }
        container::check(&name, &unpacked, digests.unpacked)?;
        self.end_layer();
        Ok(())
    }

    /// Ends a layer: a source, or a layer of a container image. Frees the blocks of the files that
    /// the layer removed.
    fn end_layer(&mut self) {
        self.pipeline.release(&self.tree.take_removed());
        self.tree.next_layer();
    }
}
