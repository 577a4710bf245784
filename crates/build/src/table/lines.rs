//! The lines of a table, and the names with which a line is compared.

use crate::tree::{NodeId, Tree};

/// The number of a wrong line, and the reason why the line is wrong.
pub(super) type Wrong = (usize, String);

/// Returns the lines that are not empty, with their numbers, without comments.
pub(super) fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = (1..).zip(text.lines());
    let lines = lines.map(|(number, line)| (number, line.split('#').next().unwrap_or("").trim()));
    lines.filter(|(_, line)| !line.is_empty())
}

/// Calls `visit` for each name in the tree, with the path that the name will have on the running
/// system.
pub(super) fn visit(
    tree: &mut Tree,
    mountpoint: &str,
    mut visit: impl FnMut(&mut Tree, NodeId, &[u8]),
) {
    let base = mountpoint.trim_end_matches('/').as_bytes().to_vec();
    let mut todo = vec![(Tree::ROOT, base)];
    while let Some((node, path)) = todo.pop() {
        let below: Vec<_> = tree
            .names(node)
            .map(|(name, child)| (child, [&path, &b"/"[..], name].concat()))
            .collect();
        visit(tree, node, if path.is_empty() { b"/" } else { &path });
        // Names are pushed in reverse, so that they are popped in the order of the tree. Thus if a
        // file has several names, the last one is also visited last.
        todo.extend(below.into_iter().rev());
    }
}
