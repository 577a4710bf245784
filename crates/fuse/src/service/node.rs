//! Node ids, the kernel's numbers for our inodes.

use crate::protocol::abi::ROOT_ID;
use lanefs_ondisk::Ino;

/// An inode number and a generation. A node id has both, so the id of a deleted inode never refers
/// to the next inode with the same number. The root's id is 1; no other inode has it, since inode 1
/// is reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// The inode.
    pub ino: Ino,
    /// The inode's generation. `None` stands for any generation, and is used for the root.
    pub generation: Option<u32>,
}

impl Node {
    /// Returns the node with this `id`.
    pub fn from_id(id: u64) -> Node {
        if id == ROOT_ID {
            return Node { ino: Ino::ROOT, generation: None };
        }
        Node { ino: Ino(id as u32), generation: Some((id >> 32) as u32) }
    }

    /// Returns the id of inode `ino` with `generation`.
    pub fn id(ino: Ino, generation: u32) -> u64 {
        if ino == Ino::ROOT { ROOT_ID } else { u64::from(generation) << 32 | u64::from(ino.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_carry_number_and_generation() {
        let id = Node::id(Ino(12), 0xdead_beef);
        assert_eq!(Node::from_id(id), Node { ino: Ino(12), generation: Some(0xdead_beef) });
        assert_eq!(Node::id(Ino::ROOT, 99), ROOT_ID);
        assert_eq!(Node::from_id(ROOT_ID).ino, Ino::ROOT);
        assert_ne!(Node::id(Ino(12), 1), Node::id(Ino(12), 2));
    }
}
