use super::*;
use crate::dir::tests::{Directory, context, name};
use lanefs_ondisk::Ino;
use lanefs_ondisk::hash::HashVersion;

/// Creates a linear directory with these names.
fn directory_of(names: &[String]) -> Directory {
    let mut cx = context(4096, HashVersion::HalfMd4);
    cx.indexing = crate::dir::Indexing::Never;
    let mut dir = Directory::new(cx);
    names.iter().for_each(|name| dir.insert(name.as_bytes(), Ino(20)).expect("room"));
    dir
}

fn index_of(dir: &Directory) -> Option<NameIndex> {
    let blocks: Vec<&[u8]> = dir.blocks.iter().map(|block| &**block).collect();
    NameIndex::of(&dir.cx.format, &blocks)
}

#[test]
fn every_name_of_some_blocks_is_found_where_a_walk_finds_it() {
    for count in [0, 1, 2, 50, 120, 1000] {
        let names: Vec<String> = (0..count).map(|n| format!("name {n}")).collect();
        let dir = directory_of(&names);
        assert_eq!(dir.blocks.len() > 1, count > 200);
        let format = &dir.cx.format;
        let index = index_of(&dir).expect("sound");
        for wanted in names.iter().map(String::as_str).chain(["other", "name", "name 1000"]) {
            let name = name(wanted.as_bytes());
            let walked = dir.blocks.iter().enumerate().find_map(|(n, block)| {
                Some((n, dirent::find(format, block, name).expect("sound")?))
            });
            let of_block = |n: usize| dir.blocks.get(n).map(|block| &**block);
            assert_eq!(index.find(format, of_block, name).expect("sound"), walked);
            assert_eq!(walked.is_some(), names.iter().any(|name| name == wanted));
        }
    }
}

#[test]
fn a_damaged_block_has_no_index() {
    let mut dir = directory_of(&["a".into(), "b".into()]);
    let mut block = dir.blocks[0].to_vec();
    // Damages the length of the second record.
    block[12 + 4] = 3;
    dir.blocks[0] = block.into();
    assert!(index_of(&dir).is_none());
}

#[test]
fn blocks_that_have_a_name_twice_have_no_index() {
    let mut dir = directory_of(&(0..300).map(|n| format!("name {n}")).collect::<Vec<_>>());
    assert!(dir.blocks.len() > 1 && index_of(&dir).is_some());
    dir.blocks.push(dir.blocks[1].clone());
    assert!(index_of(&dir).is_none());
}
