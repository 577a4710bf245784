//! The differences between two files.

use super::aspect::{Aspect, Aspects, Change};
use crate::cli::{Failure, Shown, show_time, type_name};
use crate::copy::{Attribute, Identity, Meta, Tree, TreeFile};
use crate::walk::Entry;
use lanefs::FileType;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fmt::Display;

/// The number of bytes compared at once.
const CHUNK: usize = 1 << 20;

/// Compares files of two trees.
pub struct Changes<'a, A: Tree, B: Tree> {
    a: &'a A,
    b: &'a B,
    aspects: Aspects,
    /// For each tree, maps a file with several names to the file of the other tree with which it
    /// was compared first.
    linked: [HashMap<Identity, Identity>; 2],
    buffers: [Vec<u8>; 2],
}

impl<'a, A: Tree, B: Tree> Changes<'a, A, B> {
    pub fn new(a: &'a A, b: &'a B, aspects: Aspects) -> Changes<'a, A, B> {
        let (linked, buffers) = ([HashMap::new(), HashMap::new()], [Vec::new(), Vec::new()]);
        Changes { a, b, aspects, linked, buffers }
    }

    /// Returns the differences between two files with the same path.
    pub fn between(
        &mut self,
        a: &Entry<A::Node>,
        b: &Entry<B::Node>,
    ) -> Result<Vec<Change>, Failure> {
        let mut changes = Vec::new();
        let (first, second) = (&a.meta, &b.meta);
        if first.file_type != second.file_type {
            let names = [first, second].map(|meta| type_name(meta.file_type));
            changes.push(pair("type", names[0], names[1]));
            return Ok(changes);
        }
        let aspects = self.aspects.clone();
        if aspects.contain(Aspect::Content) {
            changes.extend(self.content(a, b)?);
        }
        let is_link = first.file_type == FileType::Symlink;
        if aspects.contain(Aspect::Mode) && !is_link && first.permissions != second.permissions {
            let shown = |meta: &Meta| format!("{:04o}", meta.permissions);
            changes.push(pair("mode", shown(first), shown(second)));
        }
        if aspects.contain(Aspect::Owner) && (first.uid, first.gid) != (second.uid, second.gid) {
            let shown = |meta: &Meta| format!("{}:{}", meta.uid, meta.gid);
            changes.push(pair("owner", shown(first), shown(second)));
        }
        if aspects.contain(Aspect::Xattrs) {
            let lists = (self.a.attributes(&a.node)?, self.b.attributes(&b.node)?);
            changes.extend(attributes(lists.0, lists.1));
        }
        if aspects.contain(Aspect::Links) && !self.is_linked_alike(first, second) {
            changes.push(pair("links", first.links, second.links));
        }
        if aspects.times && first.mtime != second.mtime {
            let shown = |meta: &Meta| show_time(meta.mtime, Shown::Nanoseconds);
            changes.push(pair("mtime", shown(first), shown(second)));
        }
        Ok(changes)
    }

    /// Returns whether two files have the same hard links, among the names compared so far.
    fn is_linked_alike(&mut self, a: &Meta, b: &Meta) -> bool {
        if a.file_type == FileType::Directory || a.links < 2 && b.links < 2 {
            return true;
        }
        let [to_b, to_a] = &mut self.linked;
        let second = *to_b.entry(a.identity).or_insert(b.identity);
        let first = *to_a.entry(b.identity).or_insert(a.identity);
        (first, second) == (a.identity, b.identity)
    }

    fn content(
        &mut self,
        a: &Entry<A::Node>,
        b: &Entry<B::Node>,
    ) -> Result<Option<Change>, Failure> {
        let (first, second) = (&a.meta, &b.meta);
        Ok(match first.file_type {
            FileType::Regular if first.size != second.size => {
                Some(pair("size", first.size, second.size))
            }
            FileType::Regular => {
                // If the same two files were compared under an earlier name, they are not compared
                // again.
                let known = self.linked.first().and_then(|linked| linked.get(&first.identity));
                if first.size == 0 || known == Some(&second.identity) {
                    return Ok(None);
                }
                self.first_difference(a, b)?.map(|at| Change {
                    what: "content",
                    text: format!("content from byte {at}"),
                    values: json!({ "first_difference": at }),
                })
            }
            FileType::Symlink => {
                let texts = (self.a.read_link(&a.node)?, self.b.read_link(&b.node)?);
                let shown = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
                (texts.0 != texts.1).then(|| pair("target", shown(&texts.0), shown(&texts.1)))
            }
            FileType::CharDevice | FileType::BlockDevice => {
                let shown = |meta: &Meta| format!("{}, {}", meta.rdev.major, meta.rdev.minor);
                (first.rdev != second.rdev).then(|| pair("device", shown(first), shown(second)))
            }
            FileType::Directory | FileType::Fifo | FileType::Socket => None,
        })
    }

    /// Returns the offset of the first byte in which two files of the same size differ. Ranges that
    /// are holes in both files are not read.
    fn first_difference(
        &mut self,
        a: &Entry<A::Node>,
        b: &Entry<B::Node>,
    ) -> Result<Option<u64>, Failure> {
        let (mut first, mut second) = (self.a.open(&a.node)?, self.b.open(&b.node)?);
        let size = a.meta.size;
        let mut at = 0;
        while at < size {
            // Looking for holes costs more than reading a small file.
            if size > CHUNK as u64 {
                let next = [first.data_after(at)?, second.data_after(at)?];
                let starts = next.iter().map(|next| next.map_or(size, |(start, _)| start));
                at = starts.min().unwrap_or(size).max(at);
            }
            let len = size.saturating_sub(at).min(CHUNK as u64) as usize;
            if len == 0 {
                break;
            }
            let [one, other] = &mut self.buffers;
            one.resize(len, 0);
            other.resize(len, 0);
            first.fill(at, one)?;
            second.fill(at, other)?;
            if one != other {
                let equal = one.iter().zip(other.iter()).take_while(|(a, b)| a == b).count();
                return Ok(Some(at + equal as u64));
            }
            at += len as u64;
        }
        Ok(None)
    }
}

fn pair<T: Display + Into<Value>>(what: &'static str, a: T, b: T) -> Change {
    let text = format!("{what} {a} -> {b}");
    Change { what, text, values: json!([a.into(), b.into()]) }
}

/// Returns the names of the attributes that differ, each with a sign that means: only in A, only in
/// B, or changed.
fn attributes(mut a: Vec<Attribute>, mut b: Vec<Attribute>) -> Option<Change> {
    a.sort_unstable();
    b.sort_unstable();
    if a == b {
        return None;
    }
    let find = |list: &[Attribute], name: &[u8]| {
        list.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    };
    let mut names: Vec<&[u8]> = a.iter().chain(&b).map(|(name, _)| name.as_slice()).collect();
    names.sort_unstable();
    names.dedup();
    let shown = names.iter().filter_map(|name| {
        let sign = match (find(&a, name), find(&b, name)) {
            (first, second) if first == second => return None,
            (Some(_), None) => '-',
            (None, _) => '+',
            (Some(_), Some(_)) => '!',
        };
        Some(format!("{sign}{}", String::from_utf8_lossy(name)))
    });
    let shown: Vec<String> = shown.collect();
    let text = format!("xattrs {}", shown.join(" "));
    Some(Change { what: "xattrs", text, values: json!(shown) })
}
