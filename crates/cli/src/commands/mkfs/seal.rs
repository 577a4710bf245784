//! `lanefs mkfs --verity`: the hash tree of dm-verity for the new image.

use super::fill::From;
use super::verity::Place;
use crate::cli::{Failure, MadeFile, OutputFile, hex};
use lanefs_build::{Built, Sealed, Verity};
use lanefs_device::{Access, FileDevice, OpenOptions};
use std::fs::File;
use std::path::{Path, PathBuf};

/// A hash tree, with the values that are needed to open it.
pub(super) struct Made {
    verity: Verity,
    sealed: Sealed,
    /// The offset of the tree in its file, in bytes.
    offset: u64,
    /// The file of the tree, unless the tree is in the image.
    tree: Option<TreeFile>,
}

/// The file of a hash tree. An earlier file stays until [`Made::publish`], and a new one is removed
/// if the command fails.
struct TreeFile {
    path: PathBuf,
    made: Option<MadeFile>,
    output: Option<OutputFile>,
}

impl TreeFile {
    /// Creates the file. Refuses one that another program uses.
    fn create(path: &Path) -> Result<TreeFile, Failure> {
        let (mut made, mut output) = (None, None);
        if path.symlink_metadata().is_err() {
            made = Some(MadeFile::create(path, 0).map_err(Failure::on_host(path))?);
        } else {
            if path.exists() {
                drop(FileDevice::open(path, Access::ReadWrite, OpenOptions::default())?);
            }
            output = Some(OutputFile::create(path).map_err(Failure::on_host(path))?);
        }
        Ok(TreeFile { path: path.into(), made, output })
    }

    /// Returns the path at which the file can be written now.
    fn unfinished(&self) -> &Path {
        self.output.as_ref().and_then(OutputFile::unfinished).unwrap_or(&self.path)
    }
}

/// Writes the hash tree of an image file. `name` is the file's name in messages, and `image` is the
/// path that opens it.
pub(super) fn seal(
    from: &From,
    (name, image): (&Path, &Path),
    built: &Built,
    threads: usize,
) -> Result<Option<Made>, Failure> {
    let Some(place) = &from.verity else { return Ok(None) };
    let derived = Verity::derived(built.report.uuid);
    let salt = from.verity_salt.as_ref().map_or(derived.salt().to_vec(), |salt| salt.0.clone());
    let verity = Verity::new(salt, derived.uuid()).unwrap_or(derived);
    let len = built.bytes();
    let Some(hash_bytes) = Verity::hash_bytes(len) else {
        let why = "--verity needs a size that is a multiple of 4096 bytes";
        return Err(Failure::new(name.display(), why));
    };
    let tree = match place {
        Place::Append => None,
        Place::File(path) => Some(TreeFile::create(path)?),
    };
    let (name, path, offset) = match &tree {
        None => (name, image, len),
        Some(tree) => (&*tree.path, tree.unfinished(), 0),
    };
    let file = File::options().create(true).write(true).truncate(false).open(path);
    let sized = file.and_then(|file| file.set_len(offset).and(file.set_len(offset + hash_bytes)));
    sized.map_err(Failure::on_host(name))?;
    let open = |path: &Path, access| {
        let renamed = |failure: Failure| failure.renamed(&path.to_string_lossy(), name.display());
        let opened = FileDevice::open(path, access, OpenOptions::default());
        opened.map_err(|error| renamed(error.into()))
    };
    let written = match place {
        Place::Append => {
            let whole = open(image, Access::ReadWrite)?;
            verity.write(&whole, len, &whole, offset, threads)
        }
        Place::File(_) => {
            let out = open(path, Access::ReadWrite)?;
            verity.write(&open(image, Access::ReadOnly)?, len, &out, offset, threads)
        }
    };
    let sealed = written.map_err(Failure::about(name))?;
    Ok(Some(Made { verity, sealed, offset, tree }))
}

impl Made {
    /// Puts the complete tree in the place of an earlier one.
    pub(super) fn publish(&mut self) -> Result<(), Failure> {
        let Some(TreeFile { path, made, output }) = self.tree.take() else { return Ok(()) };
        output.map_or(Ok(()), OutputFile::finish).map_err(Failure::on_host(&path))?;
        made.into_iter().for_each(MadeFile::keep);
        Ok(())
    }

    /// Returns the values for `veritysetup open`.
    pub(super) fn line(&self) -> String {
        format!(
            "dm-verity: root hash {}, hash tree at byte {}, {} data blocks",
            hex(&self.sealed.root_hash),
            self.offset,
            self.sealed.data_blocks
        )
    }

    pub(super) fn as_json(&self) -> serde_json::Value {
        serde_json::json!({
            "root_hash": hex(&self.sealed.root_hash),
            "salt": hex(self.verity.salt()),
            "uuid": uuid::Uuid::from_bytes(self.verity.uuid()).to_string(),
            "hash_offset": self.offset,
            "hash_bytes": self.sealed.hash_bytes,
            "data_blocks": self.sealed.data_blocks,
        })
    }
}
