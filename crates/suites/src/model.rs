//! A tree in plain memory that behaves as specified for a file system. The random suites use it as
//! their oracle.

mod node;

use crate::fill::WideTimes;
use crate::image::{Mappings, cluster_size_of};
use crate::limits::Limits;
use crate::listing::Listing;
use crate::op::{File, Kind, Op, Outcome, Path, Seen, Tree, join, pattern, split};
use lanefs_ext4::{Fallocate, Rename, SetXattr};
use node::Node;
pub use node::Openness;
use rustix::io::Errno;
use std::collections::BTreeMap;

/// The largest attribute value, in bytes, that the random suites store in an inode or its attribute
/// block. The suites assume that larger values are in inodes of their own.
pub const LARGEST_INSIDE: usize = 1000;

/// The tree.
#[derive(Clone, Debug)]
pub struct Model {
    mappings: Mappings,
    wide_times: WideTimes,
    /// Collapsed and inserted ranges must start and end at multiples of this number of bytes.
    cluster_size: u64,
    /// The size of the largest file, and the end of the largest range for fallocate(2), in bytes.
    largest: u64,
    last_range: u64,
    nodes: BTreeMap<u64, Node>,
    next: u64,
    open: BTreeMap<u8, u64>,
}

const ROOT: u64 = 1;
/// The set-group-ID bit of a mode.
const SET_GROUP: u16 = 0o2000;

type Done<T> = Result<T, Errno>;

impl Default for Model {
    fn default() -> Model {
        let mappings = Mappings::Extents;
        let (nodes, open) = (BTreeMap::new(), BTreeMap::new());
        let mut model = Model {
            mappings,
            wide_times: WideTimes::Yes,
            cluster_size: 1024,
            largest: u64::MAX,
            last_range: u64::MAX,
            nodes,
            next: ROOT,
            open,
        };
        model.add(Kind::Directory, 0o755, 0, 0);
        model
    }
}

impl Model {
    /// Creates an empty tree, for an image that mke2fs makes with `options`.
    pub fn of(options: &str) -> Model {
        let (mappings, cluster_size) = (Mappings::of(options), cluster_size_of(options));
        let (wide_times, limits) = (WideTimes::of(options), Limits::of(options));
        let Limits { largest, last_range, .. } = limits;
        Model { mappings, wide_times, cluster_size, largest, last_range, ..Model::default() }
    }

    /// Sets the cluster size in bytes; without `bigalloc` it is the block size.
    pub fn with_clusters_of(self, cluster_size: u64) -> Model {
        Model { cluster_size, ..self }
    }

    /// Returns the cluster size in bytes.
    pub fn cluster_size(&self) -> u64 {
        self.cluster_size
    }

    fn add(&mut self, kind: Kind, permissions: u16, uid: u32, gid: u32) -> u64 {
        let id = self.next;
        self.next += 1;
        self.nodes.insert(id, Node::new(kind, permissions, uid, gid));
        id
    }

    fn node(&self, id: u64) -> &Node {
        &self.nodes[&id]
    }

    fn edit(&mut self, id: u64) -> &mut Node {
        self.nodes.get_mut(&id).expect("ids lead to nodes")
    }

    fn is_dir(&self, id: u64) -> bool {
        self.node(id).kind == Kind::Directory
    }

    fn resolve(&self, path: &[u8]) -> Done<u64> {
        let mut id = ROOT;
        for name in path.split(|b| *b == b'/').filter(|name| !name.is_empty()) {
            if !self.is_dir(id) {
                return Err(Errno::NOTDIR);
            }
            id = *self.node(id).children.get(name).ok_or(Errno::NOENT)?;
        }
        Ok(id)
    }

    fn parent<'p>(&self, path: &'p [u8]) -> Done<(u64, &'p [u8])> {
        let (dir, name) = split(path);
        let dir = self.resolve(dir)?;
        if self.is_dir(dir) { Ok((dir, name)) } else { Err(Errno::NOTDIR) }
    }

    fn child(&self, dir: u64, name: &[u8]) -> Option<u64> {
        self.node(dir).children.get(name).copied()
    }

    fn file(&self, file: &File) -> Done<u64> {
        match file {
            File::At(path) => self.resolve(path),
            File::Open(slot) => self.open.get(slot).copied().ok_or(Errno::BADF),
        }
    }

    fn regular(&self, file: &File) -> Done<u64> {
        let id = self.file(file)?;
        match self.node(id).kind {
            Kind::Regular => Ok(id),
            Kind::Directory => Err(Errno::ISDIR),
            _ => Err(Errno::INVAL),
        }
    }

    /// Fails if a file must not reach to `end`.
    fn check_size(&self, end: Option<u64>) -> Done<()> {
        if end.is_some_and(|end| end <= self.largest) { Ok(()) } else { Err(Errno::FBIG) }
    }

    fn attach(&mut self, dir: u64, name: &[u8], id: u64) {
        let subdir = self.is_dir(id);
        let parent = self.edit(dir);
        parent.children.insert(name.to_vec(), id);
        parent.links += u32::from(subdir);
        parent.mtime = None;
    }

    fn detach(&mut self, dir: u64, name: &[u8]) {
        let Some(id) = self.child(dir, name) else { return };
        let subdir = self.is_dir(id);
        let parent = self.edit(dir);
        parent.children.remove(name);
        parent.links -= u32::from(subdir);
        parent.mtime = None;
    }

    /// Removes one name of the inode. A directory has only one name.
    fn drop_name(&mut self, id: u64) {
        let dir = self.is_dir(id);
        let node = self.edit(id);
        node.links = if dir { 0 } else { node.links - 1 };
        self.collect(id);
    }

    fn collect(&mut self, id: u64) {
        if self.node(id).links == 0 && !self.open.values().any(|open| *open == id) {
            self.nodes.remove(&id);
        }
    }

    fn contains(&self, above: u64, below: u64) -> bool {
        above == below || self.node(above).children.values().any(|id| self.contains(*id, below))
    }

    fn rename(&mut self, path: &[u8], new: &[u8], how: Rename) -> Done<()> {
        let (from, name) = self.parent(path)?;
        let (to, new_name) = self.parent(new)?;
        let source = self.child(from, name).ok_or(Errno::NOENT)?;
        let target = self.child(to, new_name);
        match (how, target) {
            (how, Some(_)) if how.needs_free_name() => return Err(Errno::EXIST),
            (Rename::Exchange, None) => return Err(Errno::NOENT),
            _ => {}
        }
        if self.is_dir(source) && self.contains(source, to) {
            return Err(Errno::INVAL);
        }
        if let Some(target) = target
            && self.is_dir(target)
            && self.contains(target, from)
        {
            return Err(match how {
                Rename::Exchange => Errno::INVAL,
                _ if !self.is_dir(source) => Errno::ISDIR,
                _ => Errno::NOTEMPTY,
            });
        }
        if target == Some(source) {
            return Ok(());
        }
        if how == Rename::Exchange {
            let target = target.ok_or(Errno::NOENT)?;
            self.detach(from, name);
            self.detach(to, new_name);
            self.attach(from, name, target);
            self.attach(to, new_name, source);
            return Ok(());
        }
        if let Some(target) = target {
            match (self.is_dir(source), self.is_dir(target)) {
                (true, false) => return Err(Errno::NOTDIR),
                (false, true) => return Err(Errno::ISDIR),
                (true, true) if !self.node(target).children.is_empty() => {
                    return Err(Errno::NOTEMPTY);
                }
                _ => {}
            }
            self.detach(to, new_name);
            self.drop_name(target);
        }
        self.detach(from, name);
        self.attach(to, new_name, source);
        if let Rename::Whiteout { uid, gid } | Rename::WhiteoutNoReplace { uid, gid } = how {
            let whiteout = self.new_in(from, Kind::CharDevice(0, 0), 0, uid, gid);
            self.attach(from, name, whiteout);
        }
        Ok(())
    }

    /// Adds an inode, which inherits some properties from `dir`.
    fn new_in(&mut self, dir: u64, kind: Kind, permissions: u16, uid: u32, gid: u32) -> u64 {
        let (mut permissions, mut gid) = (permissions, gid);
        if self.node(dir).permissions & SET_GROUP != 0 {
            // The new object inherits the group of the directory. A new directory also inherits the
            // set-group-ID bit.
            gid = self.node(dir).gid;
            permissions |= if kind == Kind::Directory { SET_GROUP } else { 0 };
        }
        self.add(kind, permissions, uid, gid)
    }

    fn create(
        &mut self,
        path: &[u8],
        kind: &Kind,
        permissions: u16,
        uid: u32,
        gid: u32,
    ) -> Done<()> {
        let (dir, name) = self.parent(path)?;
        if self.child(dir, name).is_some() {
            return Err(Errno::EXIST);
        }
        let permissions = if matches!(kind, Kind::Symlink(_)) { 0o777 } else { permissions };
        let id = self.new_in(dir, kind.clone(), permissions, uid, gid);
        self.attach(dir, name, id);
        Ok(())
    }

    fn create_unnamed(&mut self, dir: &[u8], slot: u8) -> Done<()> {
        let (dir, _) = self.parent(&join(dir, b"x"))?;
        let id = self.new_in(dir, Kind::Regular, 0o600, 0, 0);
        let node = self.edit(id);
        (node.links, node.unnamed) = (0, true);
        self.put_open(slot, id);
        Ok(())
    }

    fn fallocate(&mut self, file: &File, how: Fallocate, offset: u64, len: u64) -> Done<()> {
        let id = self.regular(file)?;
        if offset.checked_add(len).is_none_or(|end| end > self.last_range) {
            return Err(Errno::FBIG);
        }
        if !self.mappings.support(how) {
            return Err(Errno::OPNOTSUPP);
        }
        let (unit, largest) = (self.cluster_size, self.largest);
        let node = self.edit(id);
        let end = offset + len;
        let is_whole = offset.is_multiple_of(unit) && len.is_multiple_of(unit);
        match how {
            Fallocate::Allocate | Fallocate::AllocateKeepSize => {}
            Fallocate::CollapseRange if is_whole && end < node.data.size() => {
                node.data.collapse(offset, len);
            }
            Fallocate::InsertRange if is_whole && offset < node.data.size() => {
                if len > largest - node.data.size() {
                    return Err(Errno::FBIG);
                }
                node.data.insert(offset, len);
            }
            Fallocate::CollapseRange | Fallocate::InsertRange => return Err(Errno::INVAL),
            _ => node.data.zero(offset, len),
        }
        if matches!(how, Fallocate::Allocate | Fallocate::ZeroRange) && end > node.data.size() {
            node.data.resize(end);
        }
        node.mtime = None;
        Ok(())
    }

    fn link(&mut self, file: &File, new: &[u8]) -> Done<()> {
        let id = self.file(file)?;
        let (dir, name) = self.parent(new)?;
        if self.child(dir, name).is_some() {
            return Err(Errno::EXIST);
        }
        if self.is_dir(id) {
            return Err(Errno::PERM);
        }
        if self.node(id).links == 0 && !self.node(id).unnamed {
            return Err(Errno::NOENT);
        }
        let node = self.edit(id);
        (node.links, node.unnamed) = (node.links + 1, false);
        self.attach(dir, name, id);
        Ok(())
    }

    /// Removes a name if `permits` accepts the inode that the name refers to.
    fn remove(&mut self, path: &[u8], permits: impl FnOnce(&Node) -> Done<()>) -> Done<()> {
        let (dir, name) = self.parent(path)?;
        let id = self.child(dir, name).ok_or(Errno::NOENT)?;
        permits(self.node(id))?;
        self.detach(dir, name);
        self.drop_name(id);
        Ok(())
    }

    fn act(&mut self, op: &Op) -> Done<Seen> {
        match op {
            Op::Create { path, kind, permissions, uid, gid } => {
                self.create(path, kind, *permissions, *uid, *gid)?;
            }
            Op::Unnamed { dir, slot } => self.create_unnamed(dir, *slot)?,
            Op::Open { path, slot } => {
                let id = self.resolve(path)?;
                self.put_open(*slot, id);
            }
            Op::Close { slot } => {
                let id = self.open.remove(slot).ok_or(Errno::BADF)?;
                self.collect(id);
            }
            Op::Read { file, offset, len } => {
                let id = self.regular(file)?;
                return Ok(Seen::Bytes(self.node(id).data.read(*offset, *len)));
            }
            Op::Write { file, offset, len, seed } => {
                let id = self.regular(file)?;
                self.check_size(offset.checked_add(*len as u64))?;
                self.edit(id).data.write(*offset, &pattern(*seed, *len));
                self.edit(id).mtime = None;
            }
            Op::Append { file, len, seed } => {
                let id = self.regular(file)?;
                let size = self.node(id).data.size();
                self.check_size(size.checked_add(*len as u64))?;
                let node = self.edit(id);
                node.data.write(size, &pattern(*seed, *len));
                node.mtime = None;
            }
            Op::Truncate { file, size } => {
                let id = self.regular(file)?;
                self.check_size(Some(*size))?;
                self.edit(id).data.resize(*size);
                self.edit(id).mtime = None;
            }
            Op::Fallocate { file, how, offset, len } => {
                self.fallocate(file, *how, *offset, *len)?;
            }
            Op::Link { file, new } => self.link(file, new)?,
            Op::Unlink { path } => self.remove(path, |node| match node.kind {
                Kind::Directory => Err(Errno::ISDIR),
                _ => Ok(()),
            })?,
            Op::Rmdir { path } => self.remove(path, |node| match node.kind {
                Kind::Directory if node.children.is_empty() => Ok(()),
                Kind::Directory => Err(Errno::NOTEMPTY),
                _ => Err(Errno::NOTDIR),
            })?,
            Op::Rename { path, new, how } => self.rename(path, new, *how)?,
            Op::SetXattr { path, name, value, how } => {
                let id = self.resolve(path)?;
                match (how, self.node(id).xattrs.contains_key(name)) {
                    (SetXattr::Create, true) => return Err(Errno::EXIST),
                    (SetXattr::Replace, false) => return Err(Errno::NODATA),
                    (SetXattr::CreateAndReplace, true) => return Err(Errno::EXIST),
                    (SetXattr::CreateAndReplace, false) => return Err(Errno::NODATA),
                    _ => {}
                }
                self.edit(id).xattrs.insert(name.clone(), value.clone());
            }
            Op::RemoveXattr { path, name } => {
                let id = self.resolve(path)?;
                self.edit(id).xattrs.remove(name).ok_or(Errno::NODATA)?;
            }
            Op::Chmod { path, permissions } => {
                let id = self.resolve(path)?;
                self.edit(id).permissions = *permissions;
            }
            Op::Chown { path, uid, gid } => {
                let id = self.resolve(path)?;
                let node = self.edit(id);
                (node.uid, node.gid) = (*uid, *gid);
            }
            Op::Times { path, atime, mtime } => {
                let id = self.resolve(path)?;
                let [atime, mtime] = [*atime, *mtime].map(|time| self.wide_times.stored(time));
                let node = self.edit(id);
                (node.atime, node.mtime) = (Some(atime), Some(mtime));
            }
            Op::List { path } => {
                let id = self.resolve(path)?;
                if !self.is_dir(id) {
                    return Err(Errno::NOTDIR);
                }
                return Ok(Seen::Names(self.node(id).children.keys().cloned().collect()));
            }
            Op::Fsync { file, .. } => drop(self.file(file)?),
            Op::Sync => {}
        }
        Ok(Seen::Done)
    }

    fn put_open(&mut self, slot: u8, id: u64) {
        if let Some(old) = self.open.insert(slot, id) {
            self.collect(old);
        }
    }

    /// Closes all open files, as an unmount does.
    pub fn close_all(&mut self) {
        for id in std::mem::take(&mut self.open).into_values() {
            if self.nodes.contains_key(&id) {
                self.collect(id);
            }
        }
    }

    /// Returns the sorted paths of `dir` and everything below it, for inodes whose kind `wanted`
    /// accepts.
    pub fn paths(&self, dir: &[u8], wanted: impl Fn(&Kind) -> bool) -> Vec<Path> {
        let mut found = Vec::new();
        let Ok(top) = self.resolve(dir) else { return found };
        let mut todo = vec![(dir.to_vec(), top)];
        while let Some((path, id)) = todo.pop() {
            let node = self.node(id);
            if wanted(&node.kind) {
                found.push(path.clone());
            }
            todo.extend(node.children.iter().map(|(name, id)| (join(&path, name), *id)));
        }
        found.sort();
        found
    }

    /// Returns the size of a file.
    pub fn size_of(&self, file: &File) -> u64 {
        self.file(file).map_or(0, |id| self.node(id).data.size())
    }

    /// Returns the slots in use, each with the kind of the file that is open in it.
    pub fn open_slots(&self) -> Vec<(u8, Openness)> {
        self.open.iter().map(|(slot, id)| (*slot, self.node(*id).openness())).collect()
    }

    /// Returns how many bytes the attributes of the file at `path` take in the file's inode and
    /// attribute block.
    pub fn xattr_bytes(&self, path: &[u8]) -> usize {
        let Ok(id) = self.resolve(path) else { return 0 };
        let inside = |value: &[u8]| if value.len() > LARGEST_INSIDE { 0 } else { value.len() };
        self.node(id).xattrs.iter().map(|(name, v)| name.len() + inside(v) + 20).sum()
    }

    /// Returns the names of the attributes that the file at `path` has.
    pub fn xattr_names(&self, path: &[u8]) -> Vec<Vec<u8>> {
        self.resolve(path).map_or(Vec::new(), |id| self.node(id).xattrs.keys().cloned().collect())
    }

    /// Returns everything visible in the tree.
    pub fn listing(&self) -> Listing {
        let mut listing = self.shape();
        for (path, entry) in &mut listing.entries {
            if let Ok(id) = self.resolve(path) {
                entry.content = self.node(id).content();
            }
        }
        listing
    }

    /// Works like [`Model::listing`], but leaves out the contents, so that digests are 0.
    pub fn shape(&self) -> Listing {
        let mut listing = Listing::default();
        let ids = self.ids();
        for (path, id) in &ids {
            listing.entries.insert(path.clone(), self.node(*id).entry());
        }
        listing.find_twins(|path| ids[path]);
        listing
    }

    /// Returns the number of the node at each path. A number is never reused for another node.
    pub fn ids(&self) -> BTreeMap<Path, u64> {
        let mut ids = BTreeMap::new();
        let mut todo = vec![(Path::new(), ROOT)];
        while let Some((path, id)) = todo.pop() {
            let children = self.node(id).children.iter();
            todo.extend(children.map(|(name, id)| (join(&path, name), *id)));
            ids.insert(path, id);
        }
        ids
    }

    /// Returns the number of a file's node.
    pub fn id_of(&self, file: &File) -> Option<u64> {
        self.file(file).ok()
    }
}

impl Tree for Model {
    fn apply(&mut self, op: &Op) -> Outcome {
        self.act(op).map_err(Errno::raw_os_error)
    }
}
