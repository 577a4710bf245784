use super::*;
use crate::rules::tests::attr;

#[test]
fn the_owner_is_judged_by_the_owner_bits_alone() {
    let file = attr(FileType::Regular, 0o077, 5, 6);
    let who = Credentials::new(5, 6, []);
    assert_eq!(by_mode(&who, file.file_type, &file.rights(), Want::READ), Verdict::No);
}

#[test]
fn a_supplementary_group_counts_as_a_group() {
    let file = attr(FileType::Regular, 0o640, 5, 6);
    assert_eq!(
        by_mode(&Credentials::new(7, 8, [6]), file.file_type, &file.rights(), Want::READ),
        Verdict::AskList(true)
    );
    assert_eq!(
        by_mode(&Credentials::new(7, 8, []), file.file_type, &file.rights(), Want::READ),
        Verdict::AskList(false)
    );
}

#[test]
fn without_group_bits_no_list_is_read() {
    let file = attr(FileType::Regular, 0o604, 5, 6);
    assert_eq!(
        by_mode(&Credentials::new(7, 8, []), file.file_type, &file.rights(), Want::READ),
        Verdict::Yes
    );
    assert_eq!(
        by_mode(&Credentials::new(7, 6, []), file.file_type, &file.rights(), Want::READ),
        Verdict::No
    );
}

#[test]
fn the_superuser_reads_and_writes_all_but_executes_only_executables() {
    let root = Credentials::superuser();
    let plain = attr(FileType::Regular, 0o000, 5, 6);
    assert_eq!(
        by_mode(&root, plain.file_type, &plain.rights(), Want::READ | Want::WRITE),
        Verdict::Yes
    );
    assert_eq!(by_mode(&root, plain.file_type, &plain.rights(), Want::EXECUTE), Verdict::No);
    let script = attr(FileType::Regular, 0o001, 5, 6);
    assert_eq!(by_mode(&root, script.file_type, &script.rights(), Want::EXECUTE), Verdict::Yes);
    let dir = attr(FileType::Directory, 0o000, 5, 6);
    assert_eq!(by_mode(&root, dir.file_type, &dir.rights(), Want::all()), Verdict::Yes);
}
