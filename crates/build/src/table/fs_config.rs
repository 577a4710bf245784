//! fs_config of Android: `PATH UID GID MODE [capabilities=MASK]`.
//!
//! A path is exact, or is a pattern that ends with `*`. A pattern matches all paths that begin with
//! the text before the `*`. An exact path wins over a pattern. The first of several matching
//! patterns wins. If several lines have the same exact path, the last one wins.
//!
//! Source: the Android Open Source Project, system/core/libcutils/include/private/fs_config.h
//! (meaning of the fields), build tool fs_config (format of the file).

use super::lines::{Wrong, lines, visit};
use crate::entry::Kind;
use crate::tree::{Content, NodeId, Tree};
use std::collections::HashMap;

#[derive(Debug, Clone)]
pub(super) struct FsConfig {
    mountpoint: String,
    exact: HashMap<Vec<u8>, Line>,
    patterns: Vec<(Vec<u8>, Line)>,
}

#[derive(Debug, Clone, Copy)]
struct Line {
    uid: u32,
    gid: u32,
    mode: u16,
    capabilities: Option<u64>,
}

impl FsConfig {
    pub(super) fn parse(text: &str, mountpoint: &str) -> Result<FsConfig, Wrong> {
        let mut config =
            FsConfig { mountpoint: mountpoint.into(), exact: HashMap::new(), patterns: Vec::new() };
        for (number, text) in lines(text) {
            let (path, line) = parse(text).map_err(|detail| (number, detail))?;
            // The paths have no leading slash. "/" and "" stand for the root.
            let path = format!("/{}", path.trim_matches('/'));
            match path.strip_suffix('*') {
                Some(start) => config.patterns.push((start.into(), line)),
                None => drop(config.exact.insert(path.into(), line)),
            }
        }
        Ok(config)
    }

    pub(super) fn apply(&self, tree: &mut Tree) {
        visit(tree, &self.mountpoint, |tree, node, path| {
            let pattern = || self.patterns.iter().find(|(start, _)| path.starts_with(start));
            let line = self.exact.get(path).or_else(|| pattern().map(|(_, line)| line));
            if let Some(line) = line {
                set(tree, node, line);
            }
        });
    }
}

fn parse(text: &str) -> Result<(&str, Line), String> {
    let mut fields: Vec<&str> = text.split_whitespace().collect();
    // A line that begins with a number has an empty path, which stands for the root.
    if fields.first().is_some_and(|first| first.parse::<u32>().is_ok()) {
        fields.insert(0, "");
    }
    let [path, uid, gid, mode, rest @ ..] = fields.as_slice() else {
        return Err("not PATH UID GID MODE".into());
    };
    let number = |text: &str| text.parse().map_err(|_| format!("'{text}' is not an id"));
    let mode = u16::from_str_radix(mode, 8).ok().filter(|mode| *mode <= 0o7777).ok_or("wrong mode");
    let mut line = Line { uid: number(uid)?, gid: number(gid)?, mode: mode?, capabilities: None };
    for word in rest {
        let Some(mask) = word.strip_prefix("capabilities=") else {
            return Err(format!("'{word}' is not capabilities=MASK"));
        };
        let parsed = match mask.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => mask.parse(),
        };
        line.capabilities = Some(parsed.map_err(|_| format!("'{mask}' is not a mask"))?);
    }
    Ok((path, line))
}

fn set(tree: &mut Tree, node: NodeId, line: &Line) {
    let Some(node) = tree.node_mut(node) else { return };
    (node.meta.uid, node.meta.gid) = (line.uid, line.gid);
    if !matches!(node.content, Content::File(Kind::Symlink(_))) {
        node.meta.set_permissions(line.mode);
    }
    match line.capabilities {
        None => {}
        Some(0) => node.meta.remove_attribute(b"security.capability"),
        Some(mask) => node.meta.set_attribute(b"security.capability", capability(mask)),
    }
}

/// Returns a `struct vfs_cap_data` of revision 2 (linux/capability.h) that has the flag for
/// effective capabilities.
fn capability(mask: u64) -> Vec<u8> {
    let words = [0x0200_0001, mask as u32, 0, (mask >> 32) as u32, 0];
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}
