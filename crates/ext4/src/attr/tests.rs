use super::*;
use lanefs_lanes::Words;

#[test]
fn attributes_survive_encoding_in_words() {
    let time = |secs| Time { secs, nanos: 999_999_999 };
    let attr = Attr {
        ino: Ino(u32::MAX),
        generation: 7,
        file_type: FileType::Socket,
        permissions: 0o7777,
        links: 65000,
        uid: u32::MAX,
        gid: 1 << 31,
        size: u64::MAX,
        sectors: 1 << 50,
        rdev: Rdev { major: 0xfff, minor: 0xf_ffff },
        atime: time(-(1 << 31)),
        mtime: time((1 << 34) - (1 << 31) - 1),
        ctime: time(0),
        crtime: None,
        flags: u32::MAX,
    };
    assert_eq!(Attr::from_words(attr.to_words()), attr);
    assert_eq!(Rights::from_words(attr.rights().to_words()), attr.rights());
    assert_eq!(attr.to_words()[Attr::LINKS] >> 32, 65000);
    assert_eq!(attr.to_words()[Attr::SIZE], u64::MAX);
    let with = Attr { crtime: Some(time(5)), ..attr };
    assert_eq!(Attr::from_words(with.to_words()), with);
    let later = |time: Time| Time { secs: time.secs + 1, nanos: time.nanos - 1 };
    let (mtime, ctime) = (later(attr.mtime), later(attr.ctime));
    let changed = Attr { links: 3, mtime, ctime, ..attr };
    let words = attr.to_words().into_iter().zip(changed.to_words()).enumerate();
    let differ: Vec<_> = words.filter(|(_, (a, b))| a != b).map(|(at, _)| at).collect();
    assert_eq!(differ, attr.names_changed().map(|(at, _)| at));
}
