use super::map;
use super::maps::UNMAPPED_IN_LIST;
use super::*;
use lanefs_ondisk::acl::{Acl, AclEntry, Permissions, Tag};
use proptest::prelude::*;

const USER: u32 = 12345;

fn ids(set: impl Fn(&mut IdOptions)) -> Ids {
    let mut options = IdOptions::default();
    set(&mut options);
    options.ids(USER).unwrap()
}

fn mapped_by(text: &str) -> Ids {
    ids(|options| options.add_map(Some(text)).unwrap())
}

fn list(named: &[Tag]) -> Vec<u8> {
    let entry = |tag, bits| AclEntry { tag, permissions: Permissions::from_bits(bits) };
    let mut entries = vec![entry(Tag::Owner, 6)];
    entries.extend(named.iter().filter(|t| matches!(t, Tag::User(_))).map(|&tag| entry(tag, 6)));
    entries.push(entry(Tag::OwningGroup, 4));
    entries.extend(named.iter().filter(|t| matches!(t, Tag::Group(_))).map(|&tag| entry(tag, 4)));
    entries.extend([entry(Tag::Mask, 6), entry(Tag::Other, 0)]);
    Acl::new(entries).unwrap().to_system()
}

#[test]
fn without_options_nothing_is_mapped() {
    let same = ids(|_| {});
    assert!(same.are_same() && same.keeps_lists());
    assert_eq!(same.shown(7, 8), (7, 8));
    assert_eq!(same.caller(7, 8), Caller { ids: Some((7, 8)), is_superuser: false });
    assert!(same.caller(0, 0).is_superuser);
    assert_eq!(same.chosen_user(9), Ok(Some(9)));
    assert_eq!(same.new_permissions(1, 2, 0o6755), 0o6755);
}

#[test]
fn the_owner_of_a_fakeroot_mount_is_root_of_the_image_and_no_other_user_is() {
    let fake = ids(|options| options.set_fakeroot());
    assert_eq!(fake.caller(USER, 100), Caller { ids: Some((0, 0)), is_superuser: true });
    assert_eq!(fake.caller(7, 0), Caller { ids: Some((7, 0)), is_superuser: false });
    assert_eq!(fake.shown(0, 5), (0, 5));
    assert_eq!(fake.chosen_user(USER), Ok(Some(USER)));
    let mut by_root = IdOptions::default();
    by_root.set_fakeroot();
    assert!(by_root.ids(0).unwrap().are_same());
}

#[test]
fn a_shown_owner_is_for_all_files_and_cannot_be_changed() {
    let shown = ids(|options| {
        options.set_user(Some("1000")).unwrap();
        options.set_group(Some("100")).unwrap();
    });
    assert_eq!(shown.shown(0, 0), (1000, 100));
    assert_eq!(shown.caller(7, 8).ids, Some((7, 8)));
    assert_eq!(shown.chosen_user(1000), Ok(None));
    assert_eq!(shown.chosen_user(0), Err(Refusal::Fixed));
    assert_eq!(shown.chosen_group(100), Ok(None));
    assert!(shown.keeps_lists());
    // The set-ID bits are cleared for other users, whose programs would run as the shown owner.
    assert_eq!(shown.new_permissions(1000, 100, 0o6755), 0o6755);
    assert_eq!(shown.new_permissions(7, 100, 0o6755), 0o2755);
    assert_eq!(shown.new_permissions(7, 8, 0o6755), 0o755);
}

#[test]
fn unmapped_ids_own_nothing_and_are_refused() {
    let map = mapped_by("b:1000:0:1");
    assert_eq!(map.shown(0, 0), (1000, 1000));
    assert_eq!(map.shown(1, 0), (map::UNMAPPED, 1000));
    assert_eq!(map.caller(1000, 1000), Caller { ids: Some((0, 0)), is_superuser: false });
    assert_eq!(map.caller(0, 0), Caller { ids: None, is_superuser: true });
    assert_eq!(map.caller(1000, 7).ids, None);
    assert_eq!(map.chosen_user(1000), Ok(Some(0)));
    assert_eq!(map.chosen_user(0), Err(Refusal::Unmapped));
    assert_eq!(map.groups([5, 1000, 6]), [0]);
}

#[test]
fn a_kind_of_ids_without_a_map_stays_the_same() {
    let map = mapped_by("u:1000:0:1");
    assert_eq!(map.shown(0, 7), (1000, 7));
    assert_eq!(mapped_by("u:1000:0:1 g:100:0:1").shown(0, 0), (1000, 100));
    // As in mount(8), a map without a letter is for users and groups.
    assert_eq!(mapped_by("5000:1000:2").shown(1001, 1000), (5001, 5000));
}

#[test]
fn an_unmapped_id_in_a_list_is_shown_as_one_of_no_process_and_not_stored() {
    let map = mapped_by("b:1000:0:1");
    let shown = map.shown_list(list(&[Tag::User(0), Tag::User(7), Tag::Group(0)]));
    let expected = [Tag::User(1000), Tag::User(UNMAPPED_IN_LIST), Tag::Group(1000)];
    assert_eq!(shown, list(&expected));
    assert_eq!(map.stored_list(&shown), None);
    let mapped = list(&[Tag::User(1000), Tag::Group(1000)]);
    assert_eq!(map.stored_list(&mapped), Some(list(&[Tag::User(0), Tag::Group(0)])));
    assert_eq!(map.stored_list(b"junk"), None);
    assert_eq!(map.shown_list(b"junk".to_vec()), b"junk");
}

#[test]
fn options_that_exclude_each_other_are_named() {
    for set in [
        |options: &mut IdOptions| options.set_user(Some("7")).unwrap(),
        |options: &mut IdOptions| options.set_group(Some("7")).unwrap(),
        |options: &mut IdOptions| options.set_fakeroot(),
    ] {
        let mut options = IdOptions::default();
        options.add_map(Some("1000:0:1")).unwrap();
        set(&mut options);
        assert!(options.ids(USER).is_err());
    }
    let mut options = IdOptions::default();
    for text in ["", " ", "x:1:2:3", "u:1:2", "u:1:2:3:4", "1000:0:0"] {
        assert!(options.add_map(Some(text)).is_err(), "{text}");
    }
    assert!(options.set_user(Some("4294967295")).is_err() && options.set_group(None).is_err());
}

#[test]
fn the_map_is_shown_in_words_and_in_numbers() {
    let fake = ids(|options| {
        options.set_fakeroot();
        options.set_user(Some("1000")).unwrap();
    });
    let text = "user 12345 acts as root of the image, all files are shown with user 1000";
    assert_eq!(fake.to_string(), text);
    assert_eq!(fake.figures(), [("ids.fakeroot".into(), 12345), ("ids.uid".into(), 1000)]);
    let map = mapped_by("u:1000:0:1");
    assert_eq!(map.to_string(), "idmap u:1000:0:1");
    assert_eq!(map.figures(), [("ids.map.uid.1000.0".into(), 1)]);
}

proptest! {
    #[test]
    fn a_list_that_is_stored_is_shown_as_it_was_given(
        users in prop::collection::vec(0..40u32, 0..4),
        groups in prop::collection::vec(0..40u32, 0..4),
        text in "b:[1-3]?[0-9]:[1-3]?[0-9]:[1-9]",
    ) {
        let map = mapped_by(&text);
        let named: Vec<Tag> = users.into_iter().map(Tag::User)
            .chain(groups.into_iter().map(Tag::Group)).collect();
        let given = list(&named);
        if let Some(stored) = map.stored_list(&given) {
            prop_assert_eq!(map.shown_list(stored), given);
        }
    }

    #[test]
    fn the_owner_of_a_file_on_the_host_owns_it_in_the_image(
        text in "b:[1-3]?[0-9]:[1-3]?[0-9]:[1-9]", caller in 0..60u32, owner in 0..60u32,
    ) {
        // The kernel compares the ids that the mount shows. A comparison of the stored ids would
        // have the same outcome.
        let map = mapped_by(&text);
        let (shown, _) = map.shown(owner, owner);
        let stored = map.caller(caller, caller).ids.map(|(uid, _)| uid);
        prop_assert_eq!(shown == caller, stored == Some(owner));
    }
}
