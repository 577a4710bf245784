//! Tests with trees that violate the format.

use crate::extent::tests::*;
use lanefs_ondisk::Corruption;
use lanefs_ondisk::extent::{Cause, Entries, Index, Node};

fn put(tree: &mut Tree, block: u64, node: &Node) {
    let mut bytes = vec![0; 1024];
    node.encode_into(&mut bytes);
    tree.blocks.insert(Block(block), bytes.into());
}

fn index(depth: u16, children: impl IntoIterator<Item = (u32, u64)>) -> Node {
    let index = |(start, child)| Index { start: FileBlock(start), child: Block(child) };
    let entries = Entries::Index(children.into_iter().map(index).collect());
    Node { depth, max: 84, generation: 0, entries }
}

fn set_root(tree: &mut Tree, node: Node) {
    Node { max: 4, ..node }.encode_into(&mut tree.root);
}

fn cause(tree: &Tree) -> (Option<Block>, Cause) {
    match load(&tree.root, tree, &tree.limits) {
        Err(Error::Corruption(Corruption::ExtentNode { ino: Ino(12), block, cause })) => {
            (block, cause)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_node_that_is_its_own_child_is_corruption() {
    let mut tree = Tree::new(84);
    put(&mut tree, 50, &index(4, [(0, 50)]));
    set_root(&mut tree, index(5, [(0, 50)]));
    assert_eq!(cause(&tree), (Some(Block(50)), Cause::Depth { depth: 4, expected: 3 }));
}

#[test]
fn a_node_in_two_places_is_corruption() {
    let mut tree = Tree::new(84);
    put(&mut tree, 50, &index(1, (0..84).map(|i| (i, 60))));
    let extents = vec![extent(0, 1, 99, State::Written)];
    put(&mut tree, 60, &Node { entries: Entries::Leaf(extents), ..index(0, []) });
    set_root(&mut tree, index(2, [(0, 50), (100, 50)]));
    let expected = Cause::FirstEntry { start: FileBlock(0), expected: FileBlock(1) };
    assert_eq!(cause(&tree), (Some(Block(60)), expected));
    assert_eq!(tree.reads.get(), 3);
}

#[test]
fn an_extent_beyond_its_leaf_is_corruption() {
    let mut tree = Tree::new(84);
    for (block, start) in [(50, 0), (51, 10)] {
        let extents = vec![extent(start, 11, 99, State::Written)];
        put(&mut tree, block, &Node { entries: Entries::Leaf(extents), ..index(0, []) });
    }
    set_root(&mut tree, index(1, [(0, 50), (10, 51)]));
    let expected = Cause::Range { start: FileBlock(0), to: FileBlock(10) };
    assert_eq!(cause(&tree), (Some(Block(50)), expected));
}

#[test]
fn a_plan_on_a_broken_leaf_is_corruption() {
    let mut tree = Tree::new(84);
    set_root(&mut tree, index(1, [(0, 50)]));
    let plan = plan_replace(&tree.root, &tree, &tree.limits, 5..6, &[]);
    assert!(matches!(plan, Err(Error::Corruption(_))));
}

#[test]
fn a_tree_that_cannot_become_deeper_is_an_error() {
    let mut tree = Tree::new(84);
    for depth in 0..5u16 {
        let block = 50 + u64::from(depth);
        let node = match depth {
            0 => {
                let extents = vec![extent(0, 1, 99, State::Written)];
                Node { max: 1, entries: Entries::Leaf(extents), ..index(0, []) }
            }
            _ => Node { max: 1, ..index(depth, [(0, block - 1)]) },
        };
        put(&mut tree, block, &node);
    }
    Node { max: 1, ..index(5, [(0, 54)]) }.encode_into(&mut tree.root);
    let with = [extent(7, 1, 200, State::Written)];
    let plan = plan_replace(&tree.root, &tree, &tree.limits, 7..8, &with);
    let Err(Error::Corruption(Corruption::ExtentNode { block: None, cause, .. })) = plan else {
        panic!("{plan:?}");
    };
    assert_eq!(cause, Cause::TooDeep { depth: 6, max: 5 });
}

#[test]
fn random_damage_gives_an_error_or_a_tree_and_never_a_panic() {
    let mut rng = seeded("random_damage");
    let mut tree = Tree::new(6);
    for i in 0..300 {
        tree.replace(i * 3..i * 3 + 2, &[extent(i * 3, 2, 10 + u64::from(i) * 5, State::Written)]);
    }
    let blocks: Vec<Block> = tree.blocks.keys().copied().collect();
    for _ in 0..4000 {
        let mut broken = Tree { blocks: tree.blocks.clone(), ..Tree::new(6) };
        broken.root = tree.root;
        for _ in 0..rng.usize(1..4) {
            if rng.usize(0..8) == 0 {
                broken.root[rng.usize(0..ROOT_BYTES)] = rng.u8(..);
            } else {
                let block = blocks[rng.usize(0..blocks.len())];
                let mut bytes = broken.blocks[&block].to_vec();
                bytes[rng.usize(0..12 + 6 * 12)] = rng.u8(..);
                broken.blocks.insert(block, bytes.into());
            }
        }
        let _ = load(&broken.root, &broken, &broken.limits);
        let start = rng.u32(0..1000);
        let with = [extent(start, 1, 7, State::Unwritten)];
        if let Ok(plan) =
            plan_replace(&broken.root, &broken, &broken.limits, start..start + 20, &with)
        {
            let new: Vec<Block> = (0..plan.nodes_needed() as u64).map(Block).collect();
            plan.place(&new);
        }
    }
}
