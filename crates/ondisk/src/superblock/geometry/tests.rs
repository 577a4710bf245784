use super::*;

#[test]
fn blocks_are_rounded_to_clusters() {
    let four = Clusters::new(2);
    assert_eq!([0, 1, 4, 5, u32::MAX].map(|n| four.holding(n)), [0, 1, 1, 2, 1 << 30]);
    assert_eq!([0, 3, 4, 7].map(|n| four.floor(n)), [0, 0, 4, 4]);
    assert_eq!([0, 1, 4, 5].map(|n| four.ceil(n)), [0, 4, 4, 8]);
    assert_eq!(four.ceil(u32::MAX), u32::MAX, "no cluster follows");
    assert_eq!(four.offset((1 << 40) + 6), 2);
    let one = Clusters::new(0);
    assert_eq!((one.holding(7), one.floor(7), one.ceil(7), one.offset(7)), (7, 7, 7, 0));
}

fn geometry() -> Geometry {
    Geometry {
        block_size: BlockSize::new(1024).unwrap(),
        block_count: 8192 * 12 + 100,
        first_data_block: 1,
        group_count: 13,
        blocks_per_group: 8192,
        cluster_bits: 0,
        inodes_per_group: 1000,
        inode_count: 13_000,
        inode_size: 256,
        first_ino: 11,
        desc_size: 64,
        reserved_gdt_blocks: 10,
        first_meta_bg: 0,
        backup_groups: [0; 2],
        flex_size: 16,
        features: Features { ro_compat: RoCompat::SPARSE_SUPER, ..Features::default() },
    }
}

#[test]
fn sparse_backups_are_in_groups_0_1_and_powers_of_3_5_and_7() {
    let g = Geometry { group_count: 400, ..geometry() };
    let with: Vec<u32> = (0..400).filter(|&i| g.group_has_super(Group(i))).collect();
    assert_eq!(with, [0, 1, 3, 5, 7, 9, 25, 27, 49, 81, 125, 243, 343]);
    assert!(g.backups().map(|group| group.0).eq(with.into_iter().skip(1)));
    assert!(g.group_has_super(Group(3_486_784_401)));
    assert!(!g.group_has_super(Group(u32::MAX)));
}

#[test]
fn with_sparse_super2_the_superblock_names_the_backups() {
    let mut g = Geometry { backup_groups: [1, 12], ..geometry() };
    g.features.compat = Compat::SPARSE_SUPER2;
    assert!(g.backups().eq([Group(1), Group(12)]));
    g.backup_groups = [0, 99];
    assert_eq!(g.backups().count(), 0);
}

#[test]
fn blocks_map_to_groups_and_back() {
    let g = geometry();
    assert_eq!(g.group_of(Block(0)), None);
    assert_eq!(g.group_of(Block(1)), Some((Group(0), 0)));
    assert_eq!(g.group_of(Block(8192)), Some((Group(0), 8191)));
    assert_eq!(g.group_of(Block(8193)), Some((Group(1), 0)));
    assert_eq!(g.group_of(Block(g.block_count())), None);
    assert_eq!(g.blocks_in_group(Group(12)), Some(99));
    assert_eq!(g.block_at(Group(12), 98), Some(Block(g.block_count() - 1)));
    assert_eq!(g.block_at(Group(12), 99), None);
    assert_eq!(g.group_first_block(Group(13)), None);
}

#[test]
fn inodes_map_to_table_places_and_back() {
    let g = geometry();
    assert_eq!(g.inode_place(Ino(0)), None);
    assert_eq!(g.inode_place(Ino(13_001)), None);
    let place = g.inode_place(Ino(1006)).unwrap();
    assert_eq!((place.group, place.index), (Group(1), 5));
    assert_eq!((place.table_block, place.offset), (1, 256));
    assert_eq!(g.ino_at(Group(1), 5), Some(Ino(1006)));
    assert_eq!(g.ino_at(Group(1), 1000), None);
}

#[test]
fn meta_bg_descriptors_lie_in_their_own_groups() {
    let mut g = Geometry { group_count: 40, reserved_gdt_blocks: 0, ..geometry() };
    g.block_count = 8192 * 40 + 1;
    g.features.incompat = Incompat::META_BG;
    assert_eq!(g.desc_block(0), Some(Block(2)));
    assert_eq!(g.desc_block(1), Some(Block(1 + 16 * 8192)));
    assert_eq!(g.desc_block(2), Some(Block(1 + 32 * 8192)));
    assert_eq!(g.desc_block(3), None);
    let holders: Vec<u32> = (0..40).filter(|&i| g.group_desc_blocks(Group(i)) == 1).collect();
    assert_eq!(holders, [0, 1, 15, 16, 17, 31, 32, 33]);
}
