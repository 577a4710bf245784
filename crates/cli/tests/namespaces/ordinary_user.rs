//! Mounts of ordinary users: `-o fakeroot`, `-o uid=,gid=`, `-o idmap=`, and user namespaces. The
//! image is checked by e2fsck, debugfs and the kernel's ext4.
//!
//! The tests run in mount namespaces of their own, where the users ann and ben exist, and ordinary
//! users may give `allow_other`.

use crate::mounting::*;
use crate::rootless::*;
use std::fs;

#[test]
#[ignore = "long: a real mount"]
fn the_message_to_a_user_who_cannot_write_names_ways_that_work() {
    let Some(scene) = Scene::new() else { return };
    let said = scene.run(
        "ann $L mkfs disk.img --size 64M
         ann $L mount disk.img mnt
         refused ann touch mnt/file
         ann $L umount mnt",
    );
    assert!(said.contains("--root-owner 12345:12345"), "{said}");
    assert!(said.contains("user 12345 cannot write to its root directory"), "{said}");
    assert!(said.contains("belongs to 0:0"), "{said}");
    let ways = ["fakeroot", "uid=12345,gid=12345", "idmap=12345:0:1"];
    for way in ways {
        assert!(said.contains(&format!("-o {way} ")), "{way}: {said}");
        let said = scene.run(&format!(
            "ann $L mount -o {way} disk.img mnt
             ann sh -euc 'echo text >mnt/file; mkdir mnt/dir; mv mnt/file mnt/dir; rm -r mnt/dir'
             ann $L umount mnt"
        ));
        assert_eq!(said, "", "{way}");
    }
    let (_, way) = said.split_once("lanefs chown").unwrap();
    let way = way.lines().next().unwrap().split("  ").next().unwrap();
    let said = scene.run(&format!(
        "ann $L chown {way}
         ann $L mount disk.img mnt
         ann touch mnt/file
         ann $L umount mnt
         ann $L mkfs -qF --root-owner 12345:12345 disk.img
         ann $L mount disk.img mnt
         ann touch mnt/file
         ann $L umount mnt"
    ));
    assert_eq!(said, "");
    assert_eq!(scene.owner_on_disk("/"), (ANN, ANN));
    assert_clean(&scene.path().join("disk.img"));
}

#[test]
#[ignore = "long: a real mount"]
fn with_fakeroot_a_tree_is_unpacked_as_root_unpacks_it() {
    let Some(scene) = Scene::new() else { return };
    pack(&scene);
    let said = scene.run(
        "ann $L mkfs -q disk.img --size 64M
         ann $L mount -v -o fakeroot disk.img mnt
         ann tar -C mnt --same-owner -xpf tree.tar
         ann env -C mnt sh ../survey.sh >seen
         ann sh -euc 'cd mnt; rm tmp/in; mkdir made; echo x >made/x; chown 5:6 made; chmod 700 made
             cat etc/shadow; ln etc/shadow made/shadow; setfattr -n user.a -v b made/x
             touch -d @1000000000 made/x; truncate -s 5000 made/x; echo y >>made/x; mv made/x made/y
             mkfifo made/fifo; setfacl -m u:7:r made/fifo 2>/dev/null || true'
         ann $L stats mnt
         refused ann mknod mnt/null c 1 3
         refused ann setfattr -n trusted.a -v b mnt/made/y
         ann $L umount mnt",
    );
    assert!(said.contains("ids: user 12345 acts as root of the image"), "{said}");
    assert_eq!(said.matches("Operation not permitted").count(), 2, "{said}");
    let expected = shell(&scene.path().join("tree"), SURVEY);
    assert_eq!(fs::read_to_string(scene.path().join("seen")).unwrap(), expected);
    assert_eq!(scene.on_disk("/made"), (5, 6, "0700".into()));
    assert_eq!(scene.owner_on_disk("/made/y"), (0, 0));
    assert_eq!(scene.owner_on_disk("/"), (0, 0));
    let Some(kernel) = scene.by_the_kernel(SURVEY) else { return };
    let ours: Vec<&str> = kernel.lines().filter(|line| !line.starts_with("made")).collect();
    let expected: Vec<String> = expected
        .lines()
        .filter(|line| !line.starts_with("tmp/in"))
        // The script made another link to etc/shadow.
        .map(|line| line.replace("etc/shadow f 640 0:42 1", "etc/shadow f 640 0:42 2"))
        .collect();
    assert_eq!(ours, expected);
}

/// With `fakeroot` alone, the kernel refuses to change access control lists and flags of other
/// users' files. With `uid=` in addition, the kernel takes the owner of the mount for the owner of
/// all files, and permits these changes.
#[test]
#[ignore = "long: a real mount"]
fn fakeroot_with_shown_owners_sets_lists_and_flags_of_files_of_others() {
    let Some(scene) = Scene::new() else { return };
    pack(&scene);
    let said = scene.run(
        "$L mkfs -q disk.img --size 64M -d tree; chown 12345 disk.img
         ann $L mount -o fakeroot disk.img mnt
         refused ann setfacl -m u:7:r mnt/home/ann/file
         refused ann chattr +d mnt/home/ann/file
         ann $L umount mnt
         ann $L mount -o fakeroot,uid=12345,gid=12345 disk.img mnt
         ann setfacl -m u:7:r mnt/home/ann/file
         ann chattr +d mnt/home/ann/file
         ann stat -c %u:%g mnt/home/ann/file
         ann sh -euc 'echo new >mnt/etc/new; cat mnt/etc/shadow'
         ann $L umount mnt",
    );
    assert!(said.contains("12345:12345\nroot\n"), "{said}");
    assert_eq!(scene.owner_on_disk("/home/ann/file"), (1000, 1001));
    assert_eq!(scene.owner_on_disk("/etc/new"), (0, 0));
    let Some(list) = scene.by_the_kernel("getfacl -n home/ann/file; lsattr home/ann/file") else {
        return;
    };
    assert!(list.contains("user:7:r--") && list.contains("-d-"), "{list}");
}

#[test]
#[ignore = "long: a real mount"]
fn with_shown_owners_all_files_are_the_users_and_stored_owners_stay() {
    let Some(scene) = Scene::new() else { return };
    pack(&scene);
    let said = scene.run(
        "$L mkfs -q disk.img --size 64M -d tree; chown 12345 disk.img
         ann $L mount -v -o uid=12345,gid=12345 disk.img mnt
         ann sh -euc 'find mnt | xargs stat -c %u:%g' | sort -u
         ann sh -euc 'cat mnt/etc/shadow; echo more >>mnt/home/ann/file; echo n >mnt/home/ann/new
             chmod 600 mnt/home/ann/link; chown 12345:12345 mnt/etc/shadow; rm mnt/tmp/in'
         refused ann chown 1000 mnt/etc/shadow
         ann $L stats mnt | grep ids:
         ann $L umount mnt",
    );
    for line in [
        "12345:12345",
        "root",
        "ids: all files are shown with user 12345",
        "ids: all files are shown with group 12345",
    ] {
        assert!(said.lines().any(|stated| stated == line), "{line} in {said}");
    }
    assert_eq!(scene.on_disk("/home/ann/file"), (1000, 1001, "0600".into()));
    assert_eq!(scene.owner_on_disk("/etc/shadow"), (0, 42));
    assert_eq!(scene.owner_on_disk("/home/ann/new"), (ANN, ANN));
    let Some(text) = scene.by_the_kernel("cat home/ann/link") else { return };
    assert_eq!(text, "hers\nmore\n");
}

#[test]
#[ignore = "long: a real mount"]
fn mapped_ids_are_mapped_in_both_directions_and_others_refused() {
    let Some(scene) = Scene::new() else { return };
    pack(&scene);
    // Root mounts the image for all users. Ids 0 to 9999 of the image are ids 12345 to 22344 of the
    // host.
    let said = scene.run(
        "$L mkfs -q disk.img --size 64M -d tree
         $L mount -v -o idmap=12345:0:10000 disk.img mnt
         stat -c %n,%u:%g mnt/etc/shadow mnt/home/ann mnt/tmp/in
         ann sh -euc 'echo a >mnt/etc/made; mkdir mnt/etc/dir; setfacl -m u:12346:rw,g:12347:r mnt/etc/made'
         ann sh -euc 'setfacl -d -m u:12346:rwx mnt/etc/dir; echo b >mnt/etc/dir/below'
         getfacl -n mnt/etc/made
         ben sh -euc 'echo more >>mnt/etc/made; echo c >mnt/tmp/hers'
         refused ben cat mnt/etc/shadow
         chown 12350:12351 mnt/etc/su
         refused chown 7 mnt/etc/su
         refused chown :7 mnt/etc/su
         refused setfacl -m u:7:r mnt/etc/made
         refused touch mnt/tmp/by-root
         refused as 7 touch mnt/tmp/by-7
         refused as 7 mkdir mnt/tmp/dir-by-7
         $L stats mnt | grep ids:
         $L umount mnt",
    );
    for line in [
        "mnt/etc/shadow,12345:12387",
        "mnt/home/ann,13345:13346",
        "mnt/tmp/in,12378:12378",
        "user:12346:rw-",
        "group:12347:r--",
        "ids: idmap u:12345:0:10000",
        "ids: idmap g:12345:0:10000",
    ] {
        assert!(said.lines().any(|stated| stated == line), "{line} in {said}");
    }
    // If an id is not mapped, changing an owner or creating a file fails with EOVERFLOW, and
    // setting an access control list with this id fails with EINVAL.
    assert_eq!(said.matches("Value too large for defined data type").count(), 5, "{said}");
    assert_eq!(said.matches("Invalid argument").count(), 1, "{said}");
    assert_eq!(scene.owner_on_disk("/etc/made"), (0, 0));
    assert_eq!(scene.owner_on_disk("/tmp/hers"), (1, 1));
    assert_eq!(scene.owner_on_disk("/etc/su"), (5, 6));
    let Some(lists) = scene.by_the_kernel("getfacl -n etc/made etc/dir etc/dir/below") else {
        return;
    };
    assert_eq!(lists.matches("user:1:rw").count(), 3, "{lists}");
    assert!(lists.contains("group:2:r--"), "{lists}");
}

/// If the owner of a file is not in the map, user 65534 is shown as its owner. A process of user
/// 65534 has no rights on such a file.
#[test]
#[ignore = "long: a real mount"]
fn files_without_a_mapped_owner_belong_to_nobody_on_the_host() {
    let Some(scene) = Scene::new() else { return };
    shell(
        scene.path(),
        "mkdir tree; echo secret >tree/file; chmod 600 tree/file; chown 5:5 tree/file",
    );
    shell(scene.path(), "echo list >tree/list; chmod 600 tree/list; setfacl -m u:5:rw tree/list");
    let said = scene.run(
        "$L mkfs -q disk.img --size 64M -d tree
         $L mount -o idmap=1000:0:1 disk.img mnt
         stat -c %u:%g mnt/file
         getfacl -n mnt/list
         refused as 65534 cat mnt/file
         refused as 65534 chmod 666 mnt/file
         refused as 65534 cat mnt/list
         refused as 5 cat mnt/list
         refused as 5 cat mnt/file
         refused as 1000 setfacl -m o:r mnt/list
         refused chmod 666 mnt/file
         as 1000 cat mnt/list
         $L umount mnt",
    );
    assert!(said.starts_with("65534:65534\n"), "{said}");
    assert!(said.contains("user:4294967294:rw-") && said.ends_with("list\n"), "{said}");
    assert_eq!(scene.on_disk("/file"), (5, 5, "0600".into()));
    assert_clean(&scene.path().join("disk.img"));
}

/// Makes the objects that another user attacks, and uses them, so that all names are in the
/// kernel's cache.
const ATTACKED: &str = "
umask 022; cd mnt; mkdir private public; echo secret >private/file; mkdir private/dir
echo secret >private/dir/file; echo text >public/file; chmod 1777 .; echo text >sticky
echo secret >grouped; chown 5:777 grouped; chmod 040 grouped; chmod 700 private
cp /bin/true executable; chmod 711 executable; ls -R . >/dev/null; cat private/dir/file >/dev/null
";

/// The operations that the other user tries. None of them may succeed.
const ATTACKS: [&str; 25] = [
    "cat mnt/private/file",
    "cat mnt/private/dir/file",
    "ls mnt/private",
    "stat mnt/private/file",
    "test -e mnt/private/dir",
    "readlink -e mnt/private/dir",
    "env -C mnt/private true",
    "sh -c 'echo x >mnt/public/new'",
    "sh -c 'echo x >>mnt/public/file'",
    "truncate -s 0 mnt/public/file",
    "rm -f mnt/public/file",
    "rm -f mnt/sticky",
    "mv mnt/sticky mnt/other",
    "mv mnt/public/file mnt/other",
    "ln mnt/public/file mnt/public/link",
    "mkdir mnt/public/dir",
    "mknod mnt/public/fifo p",
    "chmod 777 mnt/public/file",
    "chown 12346 mnt/public/file",
    "touch -d 2001-01-01 mnt/public/file",
    "setfattr -n user.a -v b mnt/public/file",
    "setfacl -m u:12346:rwx mnt/public",
    "cat mnt/executable",
    "chattr +i mnt/public/file",
    "cat mnt/grouped",
];

#[test]
#[ignore = "long: a real mount"]
fn another_user_gets_no_rights_of_root_by_fakeroot_or_shown_owners() {
    let Some(scene) = Scene::new() else { return };
    let attacks = ATTACKS.map(|attack| format!("refused ben {attack}")).join("\n");
    for options in ["fakeroot", "fakeroot,uid=12345,gid=12345", "uid=12345,gid=12345"] {
        // Without fakeroot, the user ann cannot give files away.
        let attacked = match options.contains("fakeroot") && !options.contains("uid") {
            true => ATTACKED.to_owned(),
            false => ATTACKED.replace("chown 5:777 grouped; chmod 040", "chmod 600"),
        };
        let said = scene.run(&format!(
            "ann $L mkfs -qF disk.img --size 64M
             ann $L mount -o allow_other,{options} disk.img mnt
             ann sh -euc '{attacked}'
             {attacks}
             ben mnt/executable
             ben cat mnt/public/file
             ben sh -euc 'umask 0; mkdir mnt/hers; cp /usr/bin/id mnt/hers/id; ls mnt/hers >/dev/null'
             ben sh -euc 'umask 0; echo x >mnt/one; echo y >>mnt/one'
             [ $(stat -c %s mnt/../disk.img) -gt 0 ]
             ann $L umount mnt"
        ));
        assert!(!said.contains("secret"), "{options}: {said}");
        assert_eq!(scene.owner_on_disk("/one"), (BEN, BEN), "{options}");
        assert_eq!(
            scene.on_disk("/public/file"),
            (scene.on_disk("/sticky").0, scene.on_disk("/sticky").1, "0644".into())
        );
        assert_clean(&scene.path().join("disk.img"));
    }
}

/// A user with the file's group as a supplementary group has exactly the permissions of the group.
/// The server asks the host for the caller's groups.
#[test]
#[ignore = "long: a real mount"]
fn supplementary_groups_count_where_the_server_checks() {
    let Some(scene) = Scene::new() else { return };
    let said = scene.run(&format!(
        "ann $L mkfs -q disk.img --size 64M
         ann $L mount -o allow_other,fakeroot disk.img mnt
         ann sh -euc '{ATTACKED}'
         in_group() {{ setpriv --reuid=12346 --regid=12346 --groups 12346,777 \"$@\"; }}
         in_group cat mnt/grouped
         refused in_group sh -c 'echo x >mnt/grouped'
         refused ben cat mnt/grouped
         ann $L umount mnt"
    ));
    assert!(said.starts_with("secret\n"), "{said}");
}

/// The option `uid` shows one owner for all files. A set-user-ID program that another user makes
/// must not run with the ID of that owner.
#[test]
#[ignore = "long: a real mount"]
fn another_users_program_does_not_run_as_the_shown_owner() {
    let Some(scene) = Scene::new() else { return };
    if !needs("perl") {
        return;
    }
    // Root creates the mount, so that set-user-ID programs work on it.
    let said = scene.run(
        "$L mkfs -q disk.img --size 64M --root-owner 0:0
         $L mount -o uid=12345,gid=12345 disk.img mnt
         ann chmod 777 mnt
         ben perl -MFcntl -e 'umask 0; sysopen(F, \"mnt/p\", O_CREAT | O_WRONLY, 06777) or die'
         ann perl -MFcntl -e 'umask 0; sysopen(F, \"mnt/q\", O_CREAT | O_WRONLY, 06777) or die'
         refused ben chmod 4755 mnt/p
         stat -c %n,%a mnt/p mnt/q
         $L umount mnt",
    );
    assert!(said.ends_with("mnt/p,777\nmnt/q,6777\n"), "{said}");
}

#[test]
#[ignore = "long: a real mount"]
fn options_that_exclude_each_other_are_refused_by_name() {
    let Some(scene) = Scene::new() else { return };
    for (options, words) in [
        ("idmap=0:0:1,fakeroot", "idmap and fakeroot"),
        ("idmap=0:0:1,uid=7", "idmap and uid"),
        ("fakeroot,allow_other,no_open", "no_open and fakeroot with allow_other"),
        ("idmap=0:0", "idmap"),
        ("idmap=0:0:2,idmap=1:9:1", "idmap"),
        ("uid=ann", "uid"),
    ] {
        let said = scene.run(&format!(
            "ann $L mkfs -qF disk.img --size 16M
             refused ann $L mount -o {options} disk.img mnt"
        ));
        assert!(said.contains(words), "{options}: {said}");
    }
}

/// In the user namespace, the user ann is root, and the host's ids 100000 to 165535 have the
/// numbers 1 to 65536. All operations have the same results as for the host's root, except
/// operations on device nodes and `trusted.` attributes.
#[test]
#[ignore = "long: a real mount"]
fn in_a_user_namespace_a_tree_is_unpacked_as_root_unpacks_it() {
    let Some(scene) = Scene::new() else { return };
    pack(&scene);
    let said = scene.run_in_namespace(&format!(
        "$L mkfs -q disk.img --size 64M
         $L mount disk.img mnt
         tar -C mnt -xpf tree.tar
         cd mnt; {SURVEY} >../seen
         setfacl -m u:1000:rw,g:5:r etc/shadow; getfacl -n etc/shadow
         chown 9:10 tmp/in; rm etc/su; ln etc/shadow made; chattr +d made
         setfattr -n user.a -v b made; setfacl -d -m u:1000:rwx home; mkdir home/below
         setpriv --reuid=1000 --clear-groups touch home/below/her
         refused mknod null c 1 3; refused setfattr -n trusted.a -v b made
         refused chown 70000 made; refused as 7 cat made
         cd ..; $L umount mnt"
    ));
    assert!(said.contains("user:1000:rw-") && said.contains("group:5:r--"), "{said}");
    assert!(said.contains("mknod: null: Operation not permitted"), "{said}");
    let expected = shell(&scene.path().join("tree"), SURVEY);
    assert_eq!(fs::read_to_string(scene.path().join("seen")).unwrap(), expected);
    assert_eq!(scene.owner_on_disk("/tmp/in"), (9, 10));
    assert_eq!(scene.owner_on_disk("/home/below/her"), (1000, 0));
    let Some(lists) = scene.by_the_kernel("getfacl -n made home/below; getfattr -d -m - made")
    else {
        return;
    };
    assert_eq!(lists.matches("user:1000:rw").count(), 3, "{lists}");
    assert!(lists.contains("user.a=\"b\""), "{lists}");
}

/// On mounts by ordinary users, in or outside of a user namespace, no user can read `trusted.`
/// attributes, so listings omit them.
#[test]
#[ignore = "long: a real mount"]
fn only_root_outside_of_user_namespaces_sees_trusted_attributes() {
    let Some(scene) = Scene::new() else { return };
    let said = scene.run(
        "ann $L mkfs -q disk.img --size 64M
         $L mount disk.img mnt
         touch mnt/file; setfattr -n trusted.a -v b mnt/file; setfattr -n user.a -v b mnt/file
         getfattr -m - mnt/file
         $L umount mnt; echo then
         ann unshare -Urm sh -euc './lanefs mount disk.img mnt; getfattr -m - mnt/file; ./lanefs umount mnt'
         ann $L mount -o fakeroot disk.img mnt
         ann getfattr -m - mnt/file
         ann $L umount mnt",
    );
    let (by_root, by_others) = said.split_once("then").unwrap();
    assert!(by_root.contains("trusted.a"), "{said}");
    assert!(!by_others.contains("trusted.a") && by_others.matches("user.a").count() == 2, "{said}");
}
