//! What e2fsck keeps and a repair loses.

use super::tree::{Name, Node, Tree};
use crate::op::show;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::ops::Range;

/// Flags of an inode that say how its data is stored: EA_INODE, INDEX, HUGE_FILE, EXTENTS,
/// EOFBLOCKS and INLINE_DATA.
const STORED: u32 = 0x20_0000 | 0x1000 | 0x4_0000 | 0x8_0000 | 0x40_0000 | 0x1000_0000;

/// A loss: its class, and what was lost.
pub type Loss = (String, String);

/// The trees of one image.
pub struct Trees<'a> {
    /// The tree before the damage.
    pub before: &'a Tree,
    /// The tree that e2fsck leaves.
    pub theirs: &'a Tree,
    /// The tree that the repair leaves.
    pub ours: &'a Tree,
}

impl Trees<'_> {
    /// Returns what e2fsck keeps and the repair loses.
    pub fn losses(&self) -> Vec<Loss> {
        let mut losses = Vec::new();
        let theirs_lost = self.theirs.lost_and_found();
        for ino in &self.theirs.reachable {
            let Some(theirs) = self.theirs.nodes.get(ino) else { continue };
            if Some(*ino) == theirs_lost || *ino < self.theirs.first && *ino != 2 {
                continue;
            }
            let before = self.before.nodes.get(ino);
            let mut names = self.theirs.names.range((*ino, Vec::new())..(*ino + 1, Vec::new()));
            if before.is_none() && theirs.mode == 0o40700 && names.next().is_none() {
                // A new `lost+found` that e2fsck could not name, and later moved to another one.
                continue;
            }
            let was = if self.before.reachable.contains(ino) { "" } else { " that had no name" };
            match self.ours.nodes.get(ino) {
                Some(ours) if self.ours.reachable.contains(ino) => {
                    compare(*ino, before, theirs, ours, &mut losses);
                }
                _ => losses.push((
                    format!("an inode is lost{was}"),
                    format!("inode {ino}, mode {:o}, size {}", theirs.mode, theirs.size),
                )),
            }
        }
        for ((dir, name), (ino, _)) in &self.theirs.names {
            let raw = name;
            if !self.theirs.reachable.contains(dir) || Some(*dir) == theirs_lost {
                continue;
            }
            let ours = self.ours.names.get(&(*dir, name.clone())).map(|(ino, _)| *ino);
            if ours == Some(*ino) || *dir == 2 && name == b"lost+found" && ours.is_some() {
                continue;
            }
            let before = self.before.names.get(&(*dir, name.clone())).map(|(ino, _)| *ino);
            let others = self.ours.names.iter().filter(|(_, (other, _))| other == ino);
            let others: Vec<_> = others.map(|((dir, name), _)| (dir, show(name))).collect();
            let name = format!("{:?} in {dir}: {ino}; ours: {others:?}", show(name));
            let what = match (before == Some(*ino), ours.is_some() && ours == before) {
                (_, true) => continue,
                // The inode has all the names that it had before the damage.
                (false, _) if self.has_old_names(*ino) => continue,
                (true, _) => "a name is lost",
                (false, _) if before.is_some() => "another target of a name is lost",
                (false, _) => "a name is lost that was not before",
            };
            // For what no name may have, e2fsck writes a dot, or several.
            let is_dotted = |name: &[u8]| {
                let mut pairs = name.iter().zip(raw);
                name.len() == raw.len() && pairs.all(|(c, dotted)| c == dotted || *dotted == b'.')
            };
            let own = self.ours.names.range((*dir, Vec::new())..(*dir + 1, Vec::new()));
            let has_dots = own
                .clone()
                .any(|((_, ours), (other, _))| other == ino && ours != raw && is_dotted(ours));
            let what = if has_dots { "a name is lost that e2fsck has with dots" } else { what };
            let has = if self.ours.reachable.contains(ino) { "" } else { ", and its inode" };
            losses.push((format!("{what}{has}"), name));
        }
        losses
    }

    fn has_old_names(&self, ino: u32) -> bool {
        let mut old = self.before.names.iter().filter(|(_, (other, _))| *other == ino).peekable();
        let is_kept = |(at, _): (&Name, &(u32, Range<u64>))| {
            self.ours.names.get(at).is_some_and(|(other, _)| *other == ino)
        };
        old.peek().is_some() && old.all(is_kept)
    }

    /// Returns the files and names that the damage did not touch, and the repair changed.
    pub fn changed(&self, damage: &[Range<u64>]) -> Vec<Loss> {
        let mut changed = Vec::new();
        let touched = |range: &Range<u64>| {
            damage.iter().any(|part| part.start < range.end && range.start < part.end)
        };
        let lost = [self.before.lost_and_found(), self.theirs.lost_and_found()];
        let whole: BTreeSet<u32> = self
            .before
            .reachable
            .iter()
            .copied()
            .filter(|ino| *ino == 2 || *ino >= self.before.first)
            .filter(|ino| !lost.contains(&Some(*ino)))
            .filter(|ino| !self.before.nodes[ino].ranges.iter().any(touched))
            .collect();
        for ino in &whole {
            let before = &self.before.nodes[ino];
            let by_both = |theirs: Option<&Node>, same: &dyn Fn(&Node) -> bool| match theirs {
                Some(theirs) if self.theirs.reachable.contains(ino) && same(theirs) => "",
                _ => ", and by e2fsck",
            };
            let theirs = self.theirs.nodes.get(ino);
            match self.ours.nodes.get(ino) {
                Some(ours) if self.ours.reachable.contains(ino) => {
                    let mut found = Vec::new();
                    compare(*ino, Some(before), before, ours, &mut found);
                    for (what, detail) in found {
                        let by = by_both(theirs, &|theirs| {
                            let mut found = Vec::new();
                            compare(*ino, Some(before), before, theirs, &mut found);
                            found.iter().all(|(other, _)| *other != what)
                        });
                        changed.push((format!("a whole file changed{by}: {what}"), detail));
                    }
                }
                _ => {
                    let by = by_both(theirs, &|_| true);
                    changed.push((format!("a whole file is lost{by}"), format!("inode {ino}")));
                }
            }
        }
        for ((dir, name), (ino, range)) in &self.before.names {
            let is_whole = whole.contains(dir) && whole.contains(ino) && !touched(range);
            let target = |tree: &Tree| tree.names.get(&(*dir, name.clone())).map(|(ino, _)| *ino);
            if is_whole && target(self.ours) != Some(*ino) {
                let named = |tree: &Tree| -> Vec<Vec<u8>> {
                    let names = tree.names.range((*dir, Vec::new())..(*dir + 1, Vec::new()));
                    let names = names.filter(|(_, (other, _))| other == ino);
                    names.map(|((_, name), _)| name.clone()).collect()
                };
                let (ours, theirs) = (named(self.ours), named(self.theirs));
                let what = match target(self.theirs) == Some(*ino) {
                    true => "lost",
                    false if !ours.is_empty() && ours == theirs => "changed as by e2fsck",
                    false => "lost, and by e2fsck",
                };
                let name = String::from_utf8_lossy(name);
                changed
                    .push((format!("a whole name is {what}"), format!("{name:?} in {dir}: {ino}")));
            }
        }
        changed
    }
}

fn compare(ino: u32, before: Option<&Node>, theirs: &Node, ours: &Node, losses: &mut Vec<Loss>) {
    if ours.is_unreadable && !theirs.is_unreadable {
        losses.push(("a mapping or attribute is unreadable".into(), format!("inode {ino}")));
    }
    let is_dir = theirs.mode & 0xf000 == 0x4000 && ours.mode & 0xf000 == 0x4000;
    let mut one = |what: &str, before: Option<&dyn Same>, theirs: &dyn Same, ours: &dyn Same| {
        let (before, theirs, ours) = (before.map(|b| b.text()), theirs.text(), ours.text());
        if theirs != ours && before.as_ref() != Some(&ours) {
            let kept = before.as_ref() == Some(&theirs);
            let class = if kept { format!("{what} lost") } else { format!("other {what}") };
            losses.push((class, format!("inode {ino}: {before:?} to {theirs} / {ours}")));
        }
    };
    macro_rules! same {
        ($($field:ident),*) => { $(
            let old = before.map(|b| &b.$field as &dyn Same);
            one(stringify!($field), old, &theirs.$field, &ours.$field);
        )* };
    }
    let kind = |node: &Node| node.mode & 0xf000;
    let is_again = before.is_some_and(|b| kind(b) == kind(ours) && kind(b) != kind(theirs));
    let old = before.map(|b| &b.mode as &dyn Same);
    one(if is_again { "type again, mode" } else { "mode" }, old, &theirs.mode, &ours.mode);
    same!(uid, gid, project, generation, field);
    for (n, what) in ["atime", "mtime", "ctime", "crtime"].into_iter().enumerate() {
        // Ours may have replayed more of the log.
        let is_later = |b: &Node| theirs.times[n] < ours.times[n] && ours.times[n] < b.times[n];
        if !before.is_some_and(is_later) {
            let before = before.map(|b| &b.times[n] as &dyn Same);
            one(what, before, &theirs.times[n], &ours.times[n]);
        }
    }
    let flags = |node: &Node| node.flags & !STORED;
    let old = before.map(flags);
    one("flags", old.as_ref().map(|b| b as &dyn Same), &flags(theirs), &flags(ours));
    // Data that e2fsck has at another place is lost too, if the file had it before.
    let own: BTreeSet<u64> = before.iter().flat_map(|b| b.data.values().copied()).collect();
    let kept = |node: &Node| node.data.values().filter(|hash| own.contains(hash)).count();
    if !is_dir && ours.size > theirs.size && kept(ours) >= kept(theirs) {
        let old = before.map(|b| &b.size as &dyn Same);
        one("size that grows with data", old, &theirs.size, &ours.size);
    } else if !is_dir {
        same!(size);
    }
    for (key, theirs) in &theirs.xattrs {
        let of = |node: &Node| node.xattrs.get(key).copied();
        let (before, ours) = (before.and_then(of), of(ours));
        if ours != Some(*theirs) && (ours.is_none() || ours != before) {
            let class = if before == Some(*theirs) { "xattr lost" } else { "other xattr" };
            let name = String::from_utf8_lossy(&key.1);
            losses.push((class.into(), format!("inode {ino}: {} {name}", key.0)));
        }
    }
    let has = |hash: &u64| ours.data.values().any(|ours| ours == hash);
    let other =
        if kept(ours) >= kept(theirs) { "other data of two lost" } else { "moved data lost" };
    let mut blocks = [Vec::new(), Vec::new(), Vec::new(), Vec::new()];
    for (n, theirs) in &theirs.data {
        let (ours, before) = (ours.data.get(n), before.and_then(|b| b.data.get(n)));
        if ours != Some(theirs) && (ours.is_none() || ours != before) {
            let class = match before == Some(theirs) {
                true => 0,
                false if own.contains(theirs) && !has(theirs) => 1,
                false if ours.is_none() => 2,
                false => 3,
            };
            blocks[class].push(*n);
        }
    }
    let classes = ["data lost", other, "foreign data, ours a hole", "other foreign data"];
    for (class, blocks) in classes.iter().zip(blocks) {
        if !blocks.is_empty() {
            losses.push(((*class).into(), format!("inode {ino}: blocks {blocks:?}")));
        }
    }
}

/// A value that is compared and shown by its text.
trait Same {
    fn text(&self) -> String;
}

impl<T: Debug> Same for T {
    fn text(&self) -> String {
        format!("{self:x?}")
    }
}
