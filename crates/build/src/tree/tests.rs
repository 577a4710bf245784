use super::*;

fn tree() -> Tree {
    Tree::new(Time { secs: 0, nanos: 0 }, Owners::default(), OnLoss::Fail)
}

#[test]
fn a_deep_directory_is_cleared_without_recursion() {
    let mut tree = tree();
    let deep = vec![&b"d"[..]; 200_000];
    let bottom = tree.parent_for(&deep).unwrap();
    let make = |tree: &mut Tree, name: &[u8]| {
        tree.make_file(bottom, name, Meta::default(), Kind::Regular(0), Over::Everything)
    };
    make(&mut tree, b"lower").unwrap();
    tree.next_layer();
    make(&mut tree, b"own").unwrap();
    let mut dir = Tree::ROOT;
    while let Some(child) = tree.child(dir, b"d") {
        tree.make_directory(dir, b"d", Meta::default()).unwrap();
        dir = child;
    }
    tree.clear_lower(Tree::ROOT);
    assert_eq!(tree.child(bottom, b"lower"), None);
    assert!(tree.child(bottom, b"own").is_some());
}

/// Applies entries of a layer to a tree that has the files `a/b/old` and `a/other`, and returns
/// the names of the result.
fn applied(entries: &[&str]) -> Vec<String> {
    let mut tree = tree();
    let make = |tree: &mut Tree, path: &str| {
        let parts: Vec<&[u8]> = path.split('/').map(str::as_bytes).collect();
        let (name, dirs) = parts.split_last().unwrap();
        let dir = tree.parent_for(dirs).unwrap();
        match (*name, name.strip_prefix(b".wh.")) {
            (b".wh..wh..opq", _) => tree.clear_lower(dir),
            (_, Some(hidden)) => tree.remove_lower(dir, hidden),
            (name, None) => {
                let kind = Kind::Regular(0);
                tree.make_file(dir, name, Meta::default(), kind, Over::Everything).unwrap();
            }
        }
    };
    make(&mut tree, "a/b/old");
    make(&mut tree, "a/other");
    tree.next_layer();
    entries.iter().for_each(|entry| make(&mut tree, entry));
    let (mut names, mut todo) = (Vec::new(), vec![(Tree::ROOT, String::new())]);
    while let Some((dir, path)) = todo.pop() {
        for (name, node) in tree.names(dir) {
            let path = format!("{path}/{}", String::from_utf8_lossy(name));
            names.push(path.clone());
            todo.push((node, path));
        }
    }
    names.sort_unstable();
    names
}

/// Whiteouts hide what lower layers have, and a layer implies the directories of its entries.
#[test]
fn the_order_of_the_entries_of_a_layer_does_not_matter() {
    let layers: [(&[&str], &[&str]); 5] = [
        (&["a/b/new", ".wh..wh..opq"], &["/a", "/a/b", "/a/b/new"]),
        (&["a/b/new", "a/.wh..wh..opq", "x"], &["/a", "/a/b", "/a/b/new", "/x"]),
        (&["a/b/new", "a/.wh.b"], &["/a", "/a/b", "/a/b/new", "/a/other"]),
        (&["a/b/new", ".wh.a"], &["/a", "/a/b", "/a/b/new"]),
        (&["a/b/new", "a/b/.wh.old", "a/.wh.other"], &["/a", "/a/b", "/a/b/new"]),
    ];
    for (entries, expected) in layers {
        let mut order = entries.to_vec();
        for _ in 0..order.len() {
            order.rotate_left(1);
            assert_eq!(applied(&order), expected, "{order:?}");
            let backwards: Vec<&str> = order.iter().rev().copied().collect();
            assert_eq!(applied(&backwards), expected, "{backwards:?}");
        }
    }
}

#[test]
fn a_link_does_not_replace_the_directory_with_its_file() {
    let mut tree = tree();
    let dir = tree.parent_for(&[b"d"]).unwrap();
    let make = |tree: &mut Tree, name: &[u8]| {
        tree.make_file(dir, name, Meta::default(), Kind::Regular(7), Over::Everything)
    };
    let file = make(&mut tree, b"f").unwrap();
    let error = tree.link(file, Tree::ROOT, b"d", Over::Everything).unwrap_err().to_string();
    assert!(error.contains("leads into the directory 'd', which it replaces"), "{error}");
    // A file with another name outside of the directory is kept.
    let dir = tree.parent_for(&[b"d"]).unwrap();
    let file =
        tree.make_file(dir, b"f", Meta::default(), Kind::Regular(7), Over::Everything).unwrap();
    tree.link(file, Tree::ROOT, b"other", Over::Everything).unwrap();
    tree.link(file, Tree::ROOT, b"d", Over::Everything).unwrap();
    assert_eq!(tree.take_removed().len(), 1);
}
