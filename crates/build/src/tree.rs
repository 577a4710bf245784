//! The tree that sources build: names, attributes and types, without data.
//!
//! Names are resolved inside of the tree, as if its root were the root directory of a process. So a
//! symbolic link or `..` never refers to a file outside of the tree.

use crate::entry::{Kind, Meta};
use crate::error::{Cause, Error, Result};
use crate::owners::Owners;
use crate::view::AttributeFilter;
use lanefs_mkfs::OnLoss;
use lanefs_ondisk::{FileType, Time};
use std::collections::{BTreeMap, VecDeque};

/// The largest number of symbolic links that are followed for one name.
const MOST_LINKS: usize = 40;

/// A file or directory of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodeId(u32);

/// A name in a directory.
#[derive(Debug, Clone, Copy)]
struct Name {
    node: NodeId,
    /// The layer (a source, or a layer of a container image) that made the name most recently.
    layer: u32,
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) meta: Meta,
    pub(crate) content: Content,
    /// How many names the file has.
    pub(crate) links: u32,
}

#[derive(Debug)]
pub(crate) enum Content {
    Directory(Directory),
    /// A file of any other type.
    File(Kind),
}

impl Content {
    pub(crate) fn file_type(&self) -> FileType {
        match self {
            Content::Directory(_) => FileType::Directory,
            Content::File(Kind::Regular(_)) => FileType::Regular,
            Content::File(Kind::Symlink(_)) => FileType::Symlink,
            Content::File(Kind::Device(kind, ..) | Kind::Empty(kind)) => *kind,
        }
    }
}

/// The names in a directory.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    names: BTreeMap<Box<[u8]>, Name>,
}

/// A tree under construction.
pub(crate) struct Tree {
    nodes: Vec<Node>,
    layer: u32,
    /// The files that have lost their last name.
    removed: Vec<NodeId>,
    /// The time that directories get if no source has an entry for them.
    time: Time,
    owners: Owners,
    on_loss: OnLoss,
    /// Which extended attributes are kept; `None` if no choice was made.
    pub(crate) kept: Option<AttributeFilter>,
    /// The number of the host's labels that were left out.
    pub(crate) labels: u64,
    /// Whether a file was in the state of fakeroot.
    pub(crate) has_claims: bool,
    /// What was left out of the sources, as `on_loss` allows.
    pub(crate) losses: Vec<String>,
}

impl Tree {
    pub(crate) const ROOT: NodeId = NodeId(0);

    /// Creates a tree with an empty root.
    pub(crate) fn new(time: Time, owners: Owners, on_loss: OnLoss) -> Tree {
        let meta = Meta { permissions: 0o755, mtime: time, ..Meta::default() };
        let content = Content::Directory(Directory::default());
        let nodes = vec![Node { meta, content, links: 1 }];
        Tree {
            nodes,
            layer: 0,
            removed: Vec::new(),
            time,
            owners,
            on_loss,
            kept: None,
            labels: 0,
            has_claims: false,
            losses: Vec::new(),
        }
    }

    pub(crate) fn next_layer(&mut self) {
        self.layer += 1;
    }

    /// Ends the sources. The rules for owners do not apply to what the tables make.
    pub(crate) fn end_sources(&mut self) {
        self.owners = Owners::default();
    }

    /// Replaces the owner in an entry's attributes by the owner that results from the rules, and
    /// removes the extended attributes that are not kept.
    pub(crate) fn owned(&self, mut meta: Meta) -> Result<Meta> {
        if let Some(kept) = &self.kept {
            meta.attributes.retain(|(name, _)| kept.keeps(name));
        }
        (meta.uid, meta.gid) = self.owners.of(meta.uid, meta.gid)?;
        Ok(meta)
    }

    /// Returns the attributes of a file of root that no source has. Its time is that of the root.
    pub(crate) fn new_meta(&self, permissions: u16) -> Meta {
        let mtime = self.node(Tree::ROOT).map_or_else(Time::default, |root| root.meta.mtime);
        Meta { permissions, mtime, ..Meta::default() }
    }

    /// Notes a property that a source cannot give.
    ///
    /// # Errors
    /// The loss, unless losses are only reported.
    pub(crate) fn lose(&mut self, loss: Error) -> Result<()> {
        match self.on_loss {
            OnLoss::Fail => Err(loss),
            OnLoss::Report => {
                self.losses.push(loss.to_string());
                Ok(())
            }
        }
    }

    pub(crate) fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.0 as usize)
    }

    pub(crate) fn node_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        self.nodes.get_mut(id.0 as usize)
    }

    /// Returns the number of files and directories created so far, including removed ones.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the files that have lost their last name since the previous call.
    pub(crate) fn take_removed(&mut self) -> Vec<NodeId> {
        std::mem::take(&mut self.removed)
    }

    fn directory(&self, id: NodeId) -> Option<&Directory> {
        match &self.node(id)?.content {
            Content::Directory(directory) => Some(directory),
            Content::File(_) => None,
        }
    }

    fn directory_mut(&mut self, id: NodeId) -> Option<&mut Directory> {
        match &mut self.node_mut(id)?.content {
            Content::Directory(directory) => Some(directory),
            Content::File(_) => None,
        }
    }

    pub(crate) fn is_directory(&self, id: NodeId) -> bool {
        self.directory(id).is_some()
    }

    /// Returns the names in a directory, sorted.
    pub(crate) fn names(&self, id: NodeId) -> impl Iterator<Item = (&[u8], NodeId)> {
        let names = self.directory(id).into_iter().flat_map(|directory| &directory.names);
        names.map(|(name, to)| (&**name, to.node))
    }

    /// Returns the file of this name.
    pub(crate) fn child(&self, dir: NodeId, name: &[u8]) -> Option<NodeId> {
        self.directory(dir)?.names.get(name).map(|name| name.node)
    }

    /// Returns the directory at this path, so that the caller can add an entry to it. Missing
    /// directories are made, and directories of earlier layers count as made by this layer.
    /// Symbolic links to directories are followed.
    pub(crate) fn parent_for(&mut self, parts: &[&[u8]]) -> Result<NodeId> {
        self.walk(parts, Missing::Make).map(|(id, _)| id)
    }

    /// Returns the file with this name; does not follow a symbolic link at the end.
    pub(crate) fn find(&mut self, parts: &[&[u8]]) -> Result<Option<NodeId>> {
        let Some((last, dirs)) = parts.split_last() else { return Ok(Some(Tree::ROOT)) };
        let (dir, found) = self.walk(dirs, Missing::Stop)?;
        Ok(if found { self.child(dir, last) } else { None })
    }

    fn walk(&mut self, parts: &[&[u8]], missing: Missing) -> Result<(NodeId, bool)> {
        let mut todo: VecDeque<Vec<u8>> = parts.iter().map(|part| part.to_vec()).collect();
        let mut path = vec![Tree::ROOT];
        let mut links = 0;
        while let Some(part) = todo.pop_front() {
            let here = path.last().copied().unwrap_or(Tree::ROOT);
            match part.as_slice() {
                b"" | b"." => continue,
                b".." => {
                    path.pop();
                    continue;
                }
                _ => {}
            }
            let Some(next) = self.child(here, &part) else {
                match missing {
                    Missing::Stop => return Ok((here, false)),
                    Missing::Make => {
                        let meta = Meta { permissions: 0o755, mtime: self.time, ..Meta::default() };
                        let place = || String::from_utf8_lossy(&part).into_owned();
                        let named = |error| Error { place: place(), ..error };
                        let meta = self.owned(meta).map_err(named)?;
                        path.push(self.make_directory(here, &part, meta)?);
                        continue;
                    }
                }
            };
            match self.node(next).map(|node| &node.content) {
                Some(Content::Directory(_)) => {
                    if missing == Missing::Make {
                        self.take_over(here, &part);
                    }
                    path.push(next);
                }
                Some(Content::File(Kind::Symlink(target))) => {
                    links += 1;
                    if links > MOST_LINKS {
                        return Err(Error::new("", Cause::Loop));
                    }
                    if target.starts_with(b"/") {
                        path.clear();
                    }
                    for part in target.split(|&byte| byte == b'/').rev() {
                        todo.push_front(part.to_vec());
                    }
                }
                _ => {
                    let part = String::from_utf8_lossy(&part).into_owned();
                    return Err(Error::new("", Cause::NotDirectory { part }));
                }
            }
        }
        Ok((path.last().copied().unwrap_or(Tree::ROOT), true))
    }

    /// Makes a directory. If a directory of this name exists, sets its attributes instead; if a
    /// file of this name exists, replaces it.
    pub(crate) fn make_directory(
        &mut self,
        dir: NodeId,
        name: &[u8],
        meta: Meta,
    ) -> Result<NodeId> {
        if let Some(existing) = self.child(dir, name)
            && self.is_directory(existing)
        {
            self.set_meta(existing, meta);
            self.name(dir, name, existing)?;
            return Ok(existing);
        }
        self.remove(dir, name);
        self.add(
            dir,
            name,
            Node { meta, content: Content::Directory(Directory::default()), links: 1 },
        )
    }

    pub(crate) fn set_meta(&mut self, id: NodeId, meta: Meta) {
        if let Some(node) = self.node_mut(id) {
            node.meta = meta;
        }
    }

    /// Makes a file. Replaces an existing file or empty directory of this name. A directory that is
    /// not empty is replaced only if `over` allows it.
    pub(crate) fn make_file(
        &mut self,
        dir: NodeId,
        name: &[u8],
        meta: Meta,
        kind: Kind,
        over: Over,
    ) -> Result<NodeId> {
        self.make_way(dir, name, over)?;
        self.add(dir, name, Node { meta, content: Content::File(kind), links: 1 })
    }

    /// Gives a file a further name.
    pub(crate) fn link(
        &mut self,
        node: NodeId,
        dir: NodeId,
        name: &[u8],
        over: Over,
    ) -> Result<()> {
        if self.child(dir, name) == Some(node) {
            return Ok(());
        }
        self.make_way(dir, name, over)?;
        match self.node_mut(node).filter(|node| node.links > 0) {
            Some(node) => node.links += 1,
            // The new name replaced a directory that held all names of the file, so the file is
            // gone.
            None => {
                let target = String::from_utf8_lossy(name).into_owned();
                return Err(Error::new("", Cause::LinkIntoItself { name: target }));
            }
        }
        self.name(dir, name, node)
    }

    fn make_way(&mut self, dir: NodeId, name: &[u8], over: Over) -> Result<()> {
        let existing = self.child(dir, name).and_then(|id| self.directory(id));
        if over == Over::Files && existing.is_some_and(|directory| !directory.names.is_empty()) {
            return Err(Error::new("", Cause::OverDirectory));
        }
        self.remove(dir, name);
        Ok(())
    }

    fn add(&mut self, dir: NodeId, name: &[u8], node: Node) -> Result<NodeId> {
        let many = || Error::new("", Cause::Unsupported { what: "a tree of 2^32 files".into() });
        let id = NodeId(u32::try_from(self.nodes.len()).map_err(|_| many())?);
        self.nodes.push(node);
        self.name(dir, name, id)?;
        Ok(id)
    }

    fn name(&mut self, dir: NodeId, name: &[u8], node: NodeId) -> Result<()> {
        if name.is_empty() || name.len() > 255 || name.contains(&0) || name.contains(&b'/') {
            return Err(Error::new("", Cause::Name));
        }
        let layer = self.layer;
        if let Some(directory) = self.directory_mut(dir) {
            directory.names.insert(name.into(), Name { node, layer });
        }
        Ok(())
    }

    /// Makes a name count as made by the current layer.
    fn take_over(&mut self, dir: NodeId, name: &[u8]) {
        let layer = self.layer;
        if let Some(name) = self.directory_mut(dir).and_then(|dir| dir.names.get_mut(name)) {
            name.layer = layer;
        }
    }

    /// Removes a name. If it is the name of a directory, removes everything below it too.
    pub(crate) fn remove(&mut self, dir: NodeId, name: &[u8]) {
        let removed = self.directory_mut(dir).and_then(|directory| directory.names.remove(name));
        let mut todo: Vec<NodeId> = removed.into_iter().map(|name| name.node).collect();
        while let Some(id) = todo.pop() {
            let Some(node) = self.node_mut(id) else { continue };
            match &mut node.content {
                Content::Directory(directory) => {
                    let names = std::mem::take(&mut directory.names);
                    todo.extend(names.into_values().map(|name| name.node));
                }
                Content::File(_) => {
                    node.links -= 1;
                    if node.links == 0 {
                        self.removed.push(id);
                    }
                }
            }
        }
    }

    /// Removes a name if an earlier layer made it. If this layer has made a directory of that name,
    /// the directory stays, and only the names in it that earlier layers made are removed.
    pub(crate) fn remove_lower(&mut self, dir: NodeId, name: &[u8]) {
        let found = self.directory(dir).and_then(|directory| directory.names.get(name)).copied();
        match found {
            Some(found) if found.layer < self.layer => self.remove(dir, name),
            Some(found) => self.clear_lower(found.node),
            None => {}
        }
    }

    /// Removes all names that earlier layers put into a directory, or into directories below it.
    pub(crate) fn clear_lower(&mut self, dir: NodeId) {
        let mut todo = vec![dir];
        while let Some(dir) = todo.pop() {
            let names = self.directory(dir).into_iter().flat_map(|directory| &directory.names);
            let (mut lower, mut kept) = (Vec::new(), Vec::new());
            for (name, found) in names {
                match found.layer < self.layer {
                    true => lower.push(name.clone()),
                    false => kept.push(found.node),
                }
            }
            lower.iter().for_each(|name| self.remove(dir, name));
            todo.append(&mut kept);
        }
    }
}

impl NodeId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// What to do about a missing directory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    Make,
    Stop,
}

/// What a new file may replace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Over {
    /// Files and empty directories, as in tar(1).
    Files,
    /// Everything, as in a layer of a container image.
    Everything,
}

/// Splits a name of an archive into its parts. Leading slashes and `.` parts are left out.
pub(crate) fn parts(path: &[u8]) -> Result<Vec<&[u8]>> {
    let mut parts = Vec::new();
    for part in path.split(|&byte| byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => return Err(Error::new("", Cause::Outside)),
            part if part.len() > 255 || part.contains(&0) => {
                return Err(Error::new("", Cause::Name));
            }
            part => parts.push(part),
        }
    }
    Ok(parts)
}

#[cfg(test)]
mod tests;
