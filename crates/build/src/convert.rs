//! Converts the tree of the sources into the tree of the new file system.

use crate::entry::{Kind, Meta};
use crate::error::{Cause, Error, Result};
use crate::pipeline::FileData;
use crate::tree::{Content, NodeId, Tree};
use lanefs_mkfs::{NewContent, NewFile, NewTree, ROOT};
use lanefs_ondisk::Time;
use sha2::{Digest, Sha256};

/// How the times of files are converted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Times {
    /// All times are kept. A file without a creation time gets the time of the build.
    Kept,
    /// All times of a file become its modification time. If a limit is given (in seconds) and the
    /// modification time is later, all times become the limit.
    Clamped(Option<u64>),
}

/// The tree of the new file system.
pub(crate) struct Converted {
    pub(crate) tree: NewTree,
    pub(crate) files: u64,
    pub(crate) directories: u64,
    /// The number of blocks that hold file data.
    pub(crate) data: u64,
    /// The newest modification time of all files, in seconds.
    pub(crate) newest: u64,
    digest: [u8; 32],
    /// The parent and the name of each file. The position in this list is the file's index.
    names: Vec<(usize, Box<[u8]>)>,
}

impl Converted {
    /// Returns a UUID (version 8, RFC 9562) that is computed from all files and `purpose`.
    pub(crate) fn uuid(&self, purpose: &str) -> [u8; 16] {
        let digest = Sha256::new().chain_update(purpose).chain_update(self.digest).finalize();
        let bytes = digest.first_chunk().copied().unwrap_or_default();
        uuid::Builder::from_custom_bytes(bytes).into_uuid().into_bytes()
    }

    /// Returns the path of a file, for messages.
    pub(crate) fn path(&self, index: usize) -> String {
        let mut names = Vec::new();
        let mut index = index;
        while index != ROOT {
            let Some((parent, name)) = self.names.get(index) else { break };
            names.push(String::from_utf8_lossy(name));
            index = *parent;
        }
        names.reverse();
        format!("/{}", names.join("/"))
    }
}

/// Converts the tree. Numbers the files in the order of the tree, in which a directory and
/// everything below it come before the next name. But `lost+found` comes directly after the root.
pub(crate) fn convert(
    mut tree: Tree,
    data: Vec<FileData>,
    times: Times,
    now: u64,
) -> Result<Converted> {
    let lost_and_found = lost_and_found(&mut tree)?;
    let mut order = Order { indices: vec![None; tree.len()], nodes: Vec::new(), names: Vec::new() };
    order.add(Tree::ROOT, ROOT, b"");
    order.add(lost_and_found, ROOT, b"lost+found");
    order.walk(&tree);
    let mut converter =
        Converter { data, times, now, digest: Sha256::new(), converted: (0, 0, 0), newest: 0 };
    let mut files = Vec::with_capacity(order.nodes.len());
    for (index, id) in order.nodes.iter().enumerate() {
        let entries = tree
            .names(*id)
            .filter_map(|(name, child)| Some((name.into(), order.index(child)?)))
            .collect();
        let parent = order.names.get(index).map_or(ROOT, |(parent, _)| *parent);
        let Some(node) = tree.node_mut(*id) else { continue };
        let meta = std::mem::take(&mut node.meta);
        let content = match &mut node.content {
            Content::Directory(_) => NewContent::Directory { parent, entries },
            Content::File(kind) => converter.content(*id, kind),
        };
        files.push(converter.file(meta, node.links, content));
    }
    let (files_made, directories, bytes) = converter.converted;
    let tree = NewTree::new(files).map_err(|error| Error::new("", error))?;
    Ok(Converted {
        tree,
        files: files_made,
        directories,
        data: bytes,
        newest: converter.newest,
        digest: converter.digest.finalize().into(),
        names: order.names,
    })
}

/// Returns the directory `lost+found`, which e2fsck requires; makes the directory if no source has
/// one.
fn lost_and_found(tree: &mut Tree) -> Result<NodeId> {
    let name = b"lost+found";
    match tree.child(Tree::ROOT, name) {
        Some(id) if tree.is_directory(id) => Ok(id),
        Some(_) => {
            let part = "lost+found".into();
            Err(Error::new("/lost+found", Cause::NotDirectory { part }))
        }
        None => tree.make_directory(Tree::ROOT, name, tree.new_meta(0o700)),
    }
}

/// Files in the order of their numbers.
struct Order {
    indices: Vec<Option<usize>>,
    nodes: Vec<NodeId>,
    names: Vec<(usize, Box<[u8]>)>,
}

impl Order {
    fn index(&self, id: NodeId) -> Option<usize> {
        self.indices.get(id.index()).copied().flatten()
    }

    /// Adds a file, unless it already got a number under another name.
    fn add(&mut self, id: NodeId, parent: usize, name: &[u8]) {
        if let Some(place @ None) = self.indices.get_mut(id.index()) {
            *place = Some(self.nodes.len());
            self.nodes.push(id);
            self.names.push((parent, name.into()));
        }
    }

    fn walk(&mut self, tree: &Tree) {
        let mut todo = vec![Tree::ROOT];
        // The names below a directory are pushed in reverse, so that they are popped in order.
        let mut pending: Vec<(NodeId, usize, Box<[u8]>)> = Vec::new();
        while let Some(dir) = todo.pop() {
            let parent = self.index(dir).unwrap_or(ROOT);
            let names: Vec<_> =
                tree.names(dir).map(|(name, id)| (id, parent, name.into())).collect();
            pending.extend(names.into_iter().rev());
            while let Some((id, parent, name)) = pending.pop() {
                self.add(id, parent, &name);
                if tree.is_directory(id) {
                    todo.push(id);
                    break;
                }
            }
        }
    }
}

struct Converter {
    data: Vec<FileData>,
    times: Times,
    now: u64,
    digest: Sha256,
    /// The number of files, the number of directories, and the number of blocks that hold file
    /// data.
    converted: (u64, u64, u64),
    newest: u64,
}

impl Converter {
    fn content(&mut self, id: NodeId, kind: &mut Kind) -> NewContent {
        match kind {
            Kind::Regular(size) => {
                let data = self.data.get_mut(id.index()).map(std::mem::take).unwrap_or_default();
                self.digest.update(data.digest.to_le_bytes());
                NewContent::Regular { size: *size, extents: data.extents }
            }
            Kind::Symlink(target) => NewContent::Symlink(std::mem::take(target)),
            Kind::Device(kind, major, minor) => NewContent::Device(*kind, *major, *minor),
            Kind::Empty(kind) => NewContent::Empty(*kind),
        }
    }

    fn file(&mut self, meta: Meta, links: u32, content: NewContent) -> NewFile {
        let now = Time { secs: self.now as i64, nanos: 0 };
        let (mtime, atime, ctime, crtime) = match self.times {
            Times::Kept => (
                meta.mtime,
                meta.atime.unwrap_or(meta.mtime),
                meta.ctime.unwrap_or(meta.mtime),
                meta.crtime.unwrap_or(now),
            ),
            Times::Clamped(limit) => {
                let limit = limit.map(|secs| Time { secs: secs as i64, nanos: 0 });
                let time = limit.map_or(meta.mtime, |limit| meta.mtime.min(limit));
                (time, time, time, time)
            }
        };
        self.newest = self.newest.max(u64::try_from(mtime.secs).unwrap_or(0));
        let file = NewFile {
            permissions: meta.permissions,
            uid: meta.uid,
            gid: meta.gid,
            atime,
            mtime,
            ctime,
            crtime,
            links,
            attributes: meta.attributes,
            content,
        };
        self.count(&file);
        file
    }

    /// Counts a file, and adds all its properties to the digest.
    fn count(&mut self, file: &NewFile) {
        if self.times != Times::Kept {
            // Extents are left out, because the data has a digest of its own, and the data's
            // position on the device follows from the other properties.
            let mut described = file.clone();
            if let NewContent::Regular { extents, .. } = &mut described.content {
                extents.clear();
            }
            self.digest.update(format!("{described:?}"));
        }
        match &file.content {
            NewContent::Directory { .. } => self.converted.1 += 1,
            NewContent::Regular { extents, .. } => {
                self.converted.0 += 1;
                self.converted.2 += extents.iter().map(|extent| u64::from(extent.len)).sum::<u64>();
            }
            _ => self.converted.0 += 1,
        }
    }
}
