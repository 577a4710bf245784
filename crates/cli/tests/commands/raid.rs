//! Tests of arrays, through the command line and the library. mdadm, e2fsck, and digests of the
//! files on the kernel's arrays check the results.

mod faults;

use crate::mounting::{assert_clean, can_mount, needs, scratch, wait_for};
use lanefs::FileSystem;
use lanefs_ondisk::md::{BadBlocks, Recovery, Superblock};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LANEFS: &str = env!("CARGO_BIN_EXE_lanefs");

const NO: &str = "no() { if \"$@\" 2>/dev/null; then echo \"not refused: $*\"; exit 9; fi; }\n";

/// Runs a shell script in a folder. In the script, `$L` is `lanefs`. A command after the word `no`
/// must fail, and every other command must succeed.
fn script(folder: &Path, text: &str) -> String {
    let output = Command::new("bash")
        .args(["-e", "-u", "-o", "pipefail", "-c", &format!("{NO}{text}")])
        .current_dir(folder)
        .env("L", LANEFS)
        .output()
        .expect("bash");
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{out}{err}");
    out
}

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../raid5/testdata")
}

#[test]
fn files_on_the_kernels_arrays_are_read_whole_and_without_each_member() {
    if !needs("xz") {
        return;
    }
    let sums = std::fs::read_to_string(golden().join("files.sha256")).expect("the digests");
    for name in ["bitmap", "ppl"] {
        let folder = scratch();
        let archive = golden().join(name).with_extension("tar.xz");
        script(folder.path(), &format!("tar -xJSf '{}'", archive.display()));
        for without in [None, Some(0), Some(1), Some(2), Some(3)] {
            let member = |slot: usize| match without {
                Some(out) if out == slot => "missing".into(),
                _ => folder.path().join(format!("m{slot}.img")).display().to_string(),
            };
            let members: Vec<String> = [2, 0, 3, 1].map(member).into();
            let array = format!("md:{}", members.join(","));
            let options = lanefs::OpenOptions::new().read_only();
            let fs = FileSystem::open_with(&array, &options).expect("a file system");
            let copy = folder.path().join("copy");
            for line in sums.lines() {
                let (digest, path) = line.split_once("  ").expect("a digest");
                std::fs::write(&copy, fs.read(path).expect("a file")).expect("a copy");
                let seen = script(folder.path(), "sha256sum copy");
                assert!(seen.starts_with(digest), "{name} without {without:?}: {path}");
            }
            assert!(fs.symlink_metadata("/link").is_ok() && fs.metadata("/hard").is_ok());
        }
    }
}

/// Returns the value of the line with this heading in an output of mdadm.
fn field(examined: &str, heading: &str) -> String {
    let lines = examined.lines().filter_map(|line| line.split_once(" : "));
    let mut found = lines.filter(|(name, _)| name.trim() == heading);
    found.next().unwrap_or_else(|| panic!("no {heading} in\n{examined}")).1.trim().to_owned()
}

#[test]
fn mdadm_agrees_on_every_field_of_an_array_made_and_used_here() {
    if !needs("mdadm") {
        return;
    }
    for (consistency, layout, members) in [
        ("ppl", "left-symmetric", 3),
        ("bitmap --bitmap-chunk 64K", "right-asymmetric", 4),
        ("resync", "parity-first", 5),
    ] {
        let folder = scratch();
        let names: Vec<String> = (0..members).map(|slot| format!("m{slot}.img")).collect();
        let array = format!("md:{}", names.join(","));
        script(
            folder.path(),
            &format!(
                "$L raid create {} --size 24M --chunk 64K --layout {layout} --name used \
                   --consistency {consistency} --uuid 01020304:05060708:090a0b0c:0d0e0f10
                 $L mkfs {array} -q
                 head -c 3000000 /dev/urandom > file
                 $L cp file {array}:/file",
                names.join(" ")
            ),
        );
        let all = script(folder.path(), &format!("$L raid examine --json {}", names.join(" ")));
        let all: serde_json::Value = serde_json::from_str(&all).expect("JSON");
        for (slot, name) in names.iter().enumerate() {
            let examined = script(folder.path(), &format!("mdadm --examine {name}"));
            let own = &all[slot];
            assert!(field(&examined, "Checksum").ends_with("- correct"), "{examined}");
            let sum = field(&examined, "Checksum").replace(" - correct", "");
            assert_eq!(own["checksum"], format!("{:0>8}", sum));
            assert_eq!(field(&examined, "Array UUID"), "01020304:05060708:090a0b0c:0d0e0f10");
            assert_eq!(own["device_uuid"], field(&examined, "Device UUID"));
            assert!(field(&examined, "Name").contains("used"), "{examined}");
            assert_eq!(field(&examined, "Raid Level"), "raid5");
            assert_eq!(field(&examined, "Raid Devices"), members.to_string());
            assert_eq!(field(&examined, "State"), "clean");
            assert_eq!(field(&examined, "Events"), own["events"].to_string());
            assert_eq!(field(&examined, "Layout"), layout);
            assert_eq!(field(&examined, "Chunk Size"), "64K");
            assert_eq!(field(&examined, "Device Role"), format!("Active device {slot}"));
            let state = "A".repeat(members);
            assert!(
                field(&examined, "Array State").starts_with(&format!("{state} ")),
                "{examined}"
            );
            let sectors = own["data"]["bytes"].as_u64().expect("a size") / 512;
            assert!(field(&examined, "Avail Dev Size").starts_with(&format!("{sectors} sectors")));
            let kib = own["array_size"].as_u64().expect("a size") / 1024;
            assert!(
                field(&examined, "Array Size").starts_with(&format!("{kib} KiB")),
                "{examined}"
            );
            let offset = own["data"]["offset"].as_u64().expect("an offset") / 512;
            assert_eq!(field(&examined, "Data Offset"), format!("{offset} sectors"));
            assert!(examined.contains("512 entries available"), "{examined}");
            match consistency.split(' ').next() {
                Some("ppl") => {
                    assert!(examined.contains("PPL : 2048 sectors at offset 8"), "{examined}")
                }
                Some("bitmap") => {
                    assert_eq!(field(&examined, "Internal Bitmap"), "8 sectors from superblock")
                }
                _ => assert!(!examined.contains("Internal Bitmap"), "{examined}"),
            }
            if consistency.starts_with("bitmap") {
                check_bitmap(folder.path(), name, own);
            }
        }
        script(folder.path(), &format!("$L raid scrub {array}"));
        // The file can still be read correctly if any single member is missing.
        for without in &names {
            let degraded = array.replace(without.as_str(), "missing");
            script(folder.path(), &format!("$L cat {degraded}:/file | cmp - file"));
        }
    }
}

/// Checks that mdadm and `lanefs raid examine` (`own`) show the same bitmap of the member `name`.
/// `mdadm --examine-bitmap` requires a block device, so a read-only loop device is used.
fn check_bitmap(folder: &Path, name: &str, own: &serde_json::Value) {
    let losetup =
        Command::new("losetup").args(["-r", "-f", "--show", name]).current_dir(folder).output();
    let Some(device) = losetup.ok().filter(|output| output.status.success()) else {
        println!("skipped: no loop device for mdadm --examine-bitmap");
        return;
    };
    let device = String::from_utf8_lossy(&device.stdout).trim().to_owned();
    let seen = Command::new("mdadm").args(["--examine-bitmap", &device]).output();
    let _ = Command::new("losetup").args(["-d", &device]).status();
    let seen = String::from_utf8_lossy(&seen.expect("mdadm").stdout).into_owned();
    assert_eq!(field(&seen, "UUID"), own["array_uuid"].as_str().expect("a uuid"), "{seen}");
    assert_eq!(field(&seen, "Events"), own["events"].to_string());
    assert_eq!(field(&seen, "Events Cleared"), own["bitmap"]["events_cleared"].to_string());
    assert_eq!(field(&seen, "State"), "OK");
    assert_eq!(field(&seen, "Chunksize"), "64 KB");
    let (bits, set) = (own["bitmap"]["bits"].to_string(), own["bitmap"]["set"].to_string());
    let bitmap = field(&seen, "Bitmap");
    assert!(bitmap.starts_with(&format!("{bits} bits (chunks), {set} dirty")), "{bitmap}");
}

#[test]
fn members_come_and_go_by_command() {
    let folder = scratch();
    script(
        folder.path(),
        "$L raid create a b c --size 24M --chunk 64K -q
         $L mkfs md:a,b,c -q
         head -c 2000000 /dev/urandom > file
         $L cp file md:a,b,c:/file
         $L raid fail md:a,b,c b | grep '^b: failed, slot 1 has no member now'
         $L raid status md:a,missing,c | grep 'degraded'
         $L raid status md:a,missing,c | grep '1  .*: failed'
         $L raid status --json md:a,b,c | grep '\"state\": \"failed\"'
         $L cp file md:a,c,missing:/second
         truncate -s 24M bigger; truncate -s 1M tiny
         no $L raid add md:a,c,missing tiny; test -e tiny
         $L raid add md:a,c,missing new; test $(stat -c %s new) = $((24 << 20))
         $L raid status md:a,new,c | grep 'clean and whole'
         $L raid status md:a,missing,c | grep '1  -: missing'
         $L raid add md:a,missing,c new | grep 'in slot 1, which missed nothing'
         $L raid status md:a,new,c | grep 'clean and whole'
         no $L raid replace md:a,new,c 0 /dev/nothing; test ! -e /dev/nothing
         no $L raid replace md:a,new,c 7 unmade; test ! -e unmade
         $L raid replace md:a,new,c 0 bigger | grep 'bigger: in slot 0, in place of a'
         $L raid remove md:bigger,new,c | grep '2 failed members forgotten'
         $L raid remove md:bigger,new,c | grep 'nothing to forget'
         $L raid scrub md:bigger,new,c
         $L cat md:bigger,new,missing:/second | cmp - file
         $L cat md:bigger,missing,c:/file | cmp - file
         no $L ls md:bigger,a,b",
    );
}

#[test]
fn impossible_arrays_are_refused_with_a_reason() {
    let folder = scratch();
    script(
        folder.path(),
        "says() { words=$1; shift; if \"$@\" > said 2>&1; then echo \"not refused: $*\"; exit 9; fi
                  grep -q -- \"$words\" said || { echo \"$*:\"; cat said; exit 9; }; }
         says 'more' $L raid create x missing missing --size 16M
         says 'only --consistency bitmap' $L raid create x y z --size 16M --bitmap-chunk 64K
         test ! -e x
         says 'create: x: given twice' $L raid create x x y --size 16M
         says 'create: y: 102400 bytes' $L raid create y x z --size 100K
         test ! -e x
         $L raid create a b c --size 16M --chunk 64K -q; cp b old
         $L raid recover md:a,b,c | grep 'nothing was left'
         says 'is given twice' $L raid status md:a,a,c
         says 'examine: x: no such file' $L raid examine x
         says 'no name' $L raid status md:a,,c
         for c in status scrub remove recover; do says 'md:MEMBER,MEMBER' $L raid $c a b c; done
         for c in status fail add replace; do says 'md:MEMBER,MEMBER' $L raid $c a b; done
         says 'create: --chunk: chunks of 3072' $L raid create x y z --size 16M --chunk 3K
         says 'create: --bitmap-chunk: bitmap' $L raid create x y z --size 16M -k bitmap --bitmap-chunk 3K
         says 'no member was given' $L raid status md:
         says 'already a member of the array' $L raid add md:a,missing,c a
         cp c copy
         says 'copy of the member in slot 2' $L raid add md:a,missing,c copy
         $L raid fail md:a,b,c b
         says 'slot 1 has no member in sync' $L raid fail md:a,b,c c
         says 'not a member in use' $L raid fail md:a,missing,c b
         says 'could not be checked' $L raid scrub md:a,missing,c
         $L raid status md:a,old,c | grep 'left out: .*old is stale'
         $L mkfs md:a,missing,c -q
         $L info md:a,old,c | grep 'old is stale'
         $L raid add md:a,b,c b; $L raid scrub md:a,b,c",
    );
}

#[test]
fn a_failing_create_removes_only_the_files_that_it_has_made() {
    let folder = scratch();
    script(
        folder.path(),
        "ln -s nowhere link; truncate -s 16M old
         no $L raid create a link c --size 16M -q; test -L link; test ! -e a; test ! -e c
         no $L raid create a old tiny/c --size 16M -q; test -e old; test ! -e a
         $L raid create a b c --size 16M -q; cp a before
         no $L raid create x a c --size 16M -q; test ! -e x; cmp a before; test -e c
         no $L mkfs link --size 16M -q; test -L link",
    );
}

#[test]
fn a_device_whose_addition_was_interrupted_has_no_slot_and_can_be_added() {
    if !needs("strace") {
        return;
    }
    let folder = scratch();
    script(
        folder.path(),
        "$L raid create a b c --size 8M -c 64K -q; $L mkfs md:a,b,c -q
         head -c 500000 /dev/urandom > file; $L cp file md:a,b,c:/file
         $L raid fail md:a,b,c b; rm b
         # The first of these writes announces the change of the superblocks. The second one, which
         # makes it, is not executed.
         no strace -f -o log -P $PWD/a -e trace=pwritev2 \
             -e inject=pwritev2:error=EIO:signal=SIGKILL:when=2 $L raid add md:a,missing,c n
         $L raid status md:a,n,c | grep 'left out: n has no slot: lanefs raid add'
         $L cat md:a,n,c:/file | cmp - file
         $L raid add md:a,n,c n | grep 'n: in slot 1, rebuilt'
         $L raid status md:a,n,c | grep 'clean and whole'; $L raid scrub md:a,n,c",
    );
}

/// Names 4 KiB of a member in its bad-block log, at this sector of the data.
fn name_as_bad(path: &Path, sector: u64) {
    let mut bytes = std::fs::read(path).expect("a member");
    let superblock = Superblock::decode(&bytes[4096..8192], bytes.len() as u64);
    let mut superblock = superblock.expect("a superblock");
    let (log, data) = (superblock.bad_block_log().expect("a log"), superblock.data());
    superblock.set_bad_blocks(BadBlocks::Some);
    let entry = (data.offset / 512 + sector) << 10 | 8;
    bytes[log.offset as usize..][..8].copy_from_slice(&entry.to_le_bytes());
    let encoded = superblock.encode();
    bytes[4096..4096 + encoded.len()].copy_from_slice(&encoded);
    std::fs::write(path, &bytes).expect("written");
}

#[test]
fn unreadable_blocks_are_told_by_the_status() {
    let folder = scratch();
    script(folder.path(), "$L raid create a b c --size 16M -c 64K -q; $L raid status md:a,b,c");
    name_as_bad(&folder.path().join("b"), 1024);
    script(
        folder.path(),
        "status=0; $L raid status md:a,b,c > seen 2> why || status=$?
         test $status = 1; grep -q 'clean and whole' seen
         grep 'b: 4.*K in 1 places cannot be read' why
         status=0; $L raid status --json md:a,b,c 2> why > seen || status=$?; test $status = 1
         grep '\"places\": 1' seen",
    );
}

#[test]
fn an_array_refused_after_a_crash_is_still_described() {
    let folder = scratch();
    script(folder.path(), "$L raid create a b c --size 16M --consistency resync -q");
    for name in ["a", "b", "c"] {
        let path = folder.path().join(name);
        let mut bytes = std::fs::read(&path).expect("a member");
        let superblock = Superblock::decode(&bytes[4096..8192], bytes.len() as u64);
        let mut superblock = superblock.expect("a superblock");
        superblock.set_resync_from(Some(0));
        let encoded = superblock.encode();
        bytes[4096..4096 + encoded.len()].copy_from_slice(&encoded);
        std::fs::write(&path, &bytes).expect("written");
    }
    script(
        folder.path(),
        "cp a before
         no $L ls md:a,missing,c
         status=0; $L raid status md:a,missing,c > seen 2> why || status=$?
         test $status = 1
         grep -q 'active and degraded' seen; grep -q '1  -: missing' seen; grep -q 'c: in sync' seen
         grep -q 'recover --force' why; test $(wc -l < why) = 1
         $L raid status --json md:a,missing,c > seen 2> why || status=json
         test $status = json; grep -q '\"refused\": true' seen
         cmp a before
         $L raid status md:a,b,c | grep 'active and whole'",
    );
}

#[test]
fn members_have_any_names_and_one_may_be_added_later() {
    let folder = scratch();
    script(
        folder.path(),
        "mkdir 'x:'; array='md:a\\,b,x\\:/c,d\\\\e'
         $L raid create 'a,b' missing 'd\\e' --size 16M --chunk 64K -q
         $L raid status 'md:a\\,b,missing,d\\e' | grep 'clean and degraded'
         $L mkfs 'md:a\\,b,missing,d\\e' -q
         head -c 500000 /dev/urandom > file; $L cp file 'md:a\\,b,missing,d\\e:/file'
         truncate -s 16M 'x:/c'; $L raid add 'md:a\\,b,missing,d\\e' 'x:/c'
         $L raid scrub \"$array\"; $L cat \"$array:/file\" | cmp - file
         $L cat 'md:missing,x\\:/c,d\\e:/file' | cmp - file
         if command -v mdadm > /dev/null; then mdadm --examine 'x:/c' | grep 'Device Role : Active device 1'; fi",
    );
}

#[test]
fn an_array_is_found_by_its_uuid_in_a_folder() {
    let folder = scratch();
    script(
        folder.path(),
        "mkdir here
         $L raid create here/a here/b here/c --size 16M --uuid 11111111:22222222:33333333:44444444 -q
         echo rubbish > here/rubbish
         $L mkfs md:11111111:22222222:33333333:44444444,here -q
         $L ls md:11111111:22222222:33333333:44444444,here:/
         no $L ls md:11111111:22222222:33333333:44444445,here:/",
    );
}

#[test]
fn devices_with_contents_are_not_overwritten() {
    let folder = scratch();
    script(
        folder.path(),
        "$L mkfs old --size 16M -q
         truncate -s 16M a b
         no $L raid create old a b
         $L raid create --force old a b --chunk 64K -q
         no $L raid create old a b
         no $L mkfs a
         $L raid scrub md:b,a,old",
    );
}

#[test]
fn creating_an_array_of_old_devices_tells_what_it_overwrites_and_does() {
    let folder = scratch();
    let said = script(
        folder.path(),
        "$L raid create a b c --size 16M --chunk 64K --name disks -q
         for command in 'raid create a b c' 'mkfs b'; do
             ! $L $command 2>&1 || exit 1
         done
         $L raid create --force a b c --chunk 64K 2>&1
         echo quiet
         $L raid create --force a b c --chunk 64K -q 2>&1
         $L raid scrub md:c,a,b",
    );
    let refused = "it contains an md superblock of array ";
    let lines: Vec<&str> = said.lines().filter(|line| line.contains(refused)).collect();
    let is_named = |line: &&str| line.contains("disks: --force overwrites it");
    assert!(lines.len() == 2 && lines.iter().all(is_named), "{said}");
    let (loud, quiet) = said.split_once("quiet").expect("both");
    assert!(loud.contains("computing parity") && !quiet.contains("computing parity"), "{said}");
}

#[test]
fn mkfs_takes_the_rows_of_the_array_and_large_files_start_with_one() {
    if !needs("e2fsck") || !needs("debugfs") {
        return;
    }
    let folder = scratch();
    let seen = script(
        folder.path(),
        "$L raid create a b c d e --size 40M --chunk 64K -q
         $L mkfs md:a,b,c,d,e --block-size 4K -q
         $L info md:a,b,c,d,e
         head -c 2000000 /dev/urandom > big
         for n in 1 2 3; do $L cp big md:a,b,c,d,e:/big$n; done
         $L cp -a /etc/ssl md:a,b,c,d,e:/ 2>/dev/null || $L mkdir md:a,b,c,d,e:/ssl",
    );
    assert!(field_of_info(&seen, "stride") == "16" && field_of_info(&seen, "stripe width") == "64");
    // Copies the whole array into one image file.
    let array = ["a", "b", "c", "d", "e"].map(|m| folder.path().join(m).display().to_string());
    let source = lanefs::Source::open(
        format!("md:{}", array.join(",")),
        lanefs::device::Access::ReadOnly,
        lanefs::device::OpenOptions::default(),
    )
    .expect("an array");
    let image = folder.path().join("image");
    let copy = lanefs::device::RamDevice::copy_of(&*source.device()).expect("a copy");
    copy.to_file(&image).expect("an image");
    assert_clean(&image);
    for n in 1..4 {
        let blocks =
            script(folder.path(), &format!("debugfs -R 'blocks /big{n}' image 2>/dev/null"));
        let first = blocks.split_whitespace().next().and_then(|block| block.parse::<u64>().ok());
        let first = first.unwrap_or_else(|| panic!("no blocks in {blocks}"));
        assert_eq!(first % 64, 0, "big{n} begins at block {first}, within a row");
    }
}

fn field_of_info(text: &str, name: &str) -> String {
    let line = text.lines().find(|line| line.to_lowercase().contains(name));
    line.and_then(|line| line.split_whitespace().last()).unwrap_or_default().to_owned()
}

#[test]
fn a_mounted_array_loses_a_member_and_goes_on() {
    if !can_mount() {
        return;
    }
    let folder = scratch();
    script(
        folder.path(),
        "$L raid create a b c --size 32M --chunk 64K -q
         $L mkfs md:a,b,c -q; mkdir mnt
         $L mount -o rows=9 md:c,missing,a mnt
         head -c 3000000 /dev/urandom > file
         cp file mnt/file; sync mnt/file; cmp file mnt/file
         $L stats mnt | grep 'strips of rows written whole' | grep -v ' 0 in part'
         $L stats mnt | grep 'one of 9 rows at once.*1 of 3 members not in sync'
         $L stats mnt --json | grep '\"array.full_row\": [1-9]'
         no $L mount -o rows=0 md:a,b,c mnt; no $L mount -o rows=9 a mnt
         $L raid status md:a,c,missing > seen
         grep -q 'degraded' seen; grep -q 'mounted on .*/mnt' seen; $L info md:a,c,missing | grep -q 'mounted on'
         no $L raid fail md:a,c,missing c; $L raid fail md:a,c,missing c 2> seen || true
         grep -q 'slot 1 has no member in sync' seen
         no $L raid scrub md:a,c,missing; $L raid scrub md:a,c,missing 2> seen || true
         grep -q 'mounted on .*/mnt: .*unmount it' seen
         $L umount mnt
         $L raid status md:a,c,missing | grep 'clean and degraded'
         $L raid add --no-wait md:a,c,missing b
         $L mount md:a,b,c mnt; cmp file mnt/file",
    );
    // The member is rebuilt while the array is mounted.
    let member = folder.path().join("b");
    wait_for("the rebuild", Duration::from_secs(60), || {
        let bytes = std::fs::read(&member).expect("a member");
        let read = Superblock::decode(&bytes[4096..8192], bytes.len() as u64);
        read.is_ok_and(|superblock| superblock.recovery() == Recovery::InSync)
    });
    script(
        folder.path(),
        "cmp file mnt/file; $L umount mnt
         $L raid status md:a,b,c | grep 'clean and whole'
         $L raid scrub md:a,b,c
         $L cat md:missing,b,c:/file | cmp - file",
    );
}

#[test]
fn members_fail_and_come_beside_a_mount() {
    if !can_mount() {
        return;
    }
    for consistency in ["ppl", "bitmap", "resync"] {
        let folder = scratch();
        script(
            folder.path(),
            &format!(
                "$L raid create a b c --size 48M --chunk 64K -q -k {consistency}
                 $L mkfs md:a,b,c -q; mkdir mnt
                 $L mount md:a,b,c mnt
                 head -c 9000000 /dev/urandom > file; cp file mnt/first
                 (while test ! -e stop; do cp file mnt/busy; sync mnt/busy; done) &
                 trap 'touch stop' EXIT
                 $L raid fail md:a,b,c b | grep '/b: failed, slot 1 has no member'
                 $L raid status md:a,missing,c | grep '1  -: failed'
                 cp file mnt/second; sync mnt/second
                 no $L raid fail md:a,missing,c 0
                 no $L raid add md:a,missing,c a
                 $L raid add md:a,missing,c new | grep '^new: in slot 1, rebuilt'
                 no $L raid add md:a,missing,c more; test ! -e more
                 $L raid remove md:a,new,c | grep '1 failed member forgotten'
                 $L raid status md:a,new,c | grep 'whole'
                 $L raid fail md:a,new,c 2
                 cp file mnt/third; sync mnt/third
                 $L raid add --no-wait md:a,new,missing c | grep '^c: '
                 touch stop; wait
                 cmp file mnt/first; cmp file mnt/second; cmp file mnt/third
                 $L umount md:new,a,c
                 $L raid recover md:a,new,c; $L raid status md:a,new,c | grep 'clean and whole'
                 $L raid scrub md:a,new,c
                 for f in first second third; do $L cat md:missing,new,c:/$f | cmp - file; done"
            ),
        );
    }
}

#[test]
fn a_file_with_the_name_of_a_failed_member_is_another_file() {
    if !can_mount() {
        return;
    }
    let folder = scratch();
    script(
        folder.path(),
        "$L raid create a b c --size 48M --chunk 64K -q
         $L mkfs md:a,b,c -q; mkdir mnt; $L mount md:a,b,c mnt
         head -c 9000000 /dev/urandom > mnt/file; sync mnt/file; cp mnt/file file
         $L raid fail md:a,b,c b | grep '/b: failed, slot 1 has no member'
         mv b old; before=$(md5sum < old)
         $L raid add md:a,missing,c b | grep '^b: in slot 1, rebuilt'
         test \"$(md5sum < old)\" = \"$before\"
         $L umount mnt; $L raid status md:a,b,c | grep 'clean and whole'; $L raid scrub md:a,b,c
         $L cat md:missing,b,c:/file | cmp - file",
    );
}

#[test]
fn a_member_is_replaced_beside_a_mount() {
    if !can_mount() {
        return;
    }
    for consistency in ["ppl", "bitmap", "resync"] {
        let folder = scratch();
        script(
            folder.path(),
            &format!(
                "$L raid create a b c --size 48M --chunk 64K -q -k {consistency}
                 $L mkfs md:a,b,c -q; mkdir mnt
                 $L mount md:a,b,c mnt
                 head -c 9000000 /dev/urandom > file; cp file mnt/first
                 (while test ! -e stop; do cp file mnt/busy; sync mnt/busy; done) &
                 trap 'touch stop' EXIT
                 $L raid scrub mnt | grep 'parity is right'; $L raid scrub --limit 1G --json mnt
                 no $L raid scrub .; no $L raid scrub --limit 1G md:a,b,c
                 no $L raid replace md:a,b,c 7 new; test ! -e new
                 no $L raid replace md:a,b,c b a
                 truncate -s 1M small; no $L raid replace md:a,b,c b small
                 $L raid status md:a,b,c | grep whole
                 $L raid replace md:a,b,c b new | grep '^new: in slot 1, in place of .*/b$'
                 $L raid status md:a,new,c | grep whole
                 cp file mnt/second; sync mnt/second
                 $L raid replace md:a,new,c 0 other | grep '^other: in slot 0, in place of .*/a$'
                 touch stop; wait
                 cmp file mnt/first; cmp file mnt/second
                 $L umount md:new,c,other
                 $L raid status md:other,new,c | grep 'clean and whole'
                 $L raid scrub md:other,new,c
                 $L raid status md:a,new,c 2>&1 | grep 'left out'
                 for f in first second; do $L cat md:other,new,missing:/$f | cmp - file; done"
            ),
        );
    }
}

#[test]
fn a_spare_takes_over_beside_a_mount_and_a_scrub_goes_on() {
    if !can_mount() {
        return;
    }
    let folder = scratch();
    script(
        folder.path(),
        "export XDG_STATE_HOME=$PWD/state
         $L raid create a b c --size 160M --chunk 64K -q; $L mkfs md:a,b,c -q; mkdir mnt
         $L raid add --spare md:a,b,c d | grep '^d: a spare'
         $L raid examine d | grep 'role  *spare'; $L raid status md:a,b,c,d | grep '/*d: spare'
         if command -v mdadm; then mdadm --examine d | grep 'Device Role : spare'; fi
         $L mount md:a,b,c,d mnt
         head -c 9000000 /dev/urandom > file; cp file mnt/file; sync mnt/file
         $L raid fail md:a,b,c,d b
         for i in $(seq 600); do
             if test $($L raid status md:a,d,c | grep -c 'in sync') = 3; then break; fi
             sleep 0.1
         done
         $L raid status md:a,d,c | grep -c 'in sync' | grep 3
         no $L raid add md:a,d,c d
         # Parts of 64 MiB of each member; the second is under way when the mount ends.
         $L raid scrub --limit 16M mnt > seen 2>&1 &
         for i in $(seq 600); do
             if test -e state/lanefs/scrub-*.json; then break; fi
             sleep 0.1
         done
         $L raid status md:a,d,c | grep 'comparing, .* % done'
         cmp file mnt/file; $L umount mnt; wait
         $L raid scrub --resume --json md:a,d,c > seen
         grep '\"rows\": 2[0-9][0-9][0-9]' seen; grep '\"wrong_rows\": 0' seen
         no test -e state/lanefs/scrub-*.json
         $L cat md:missing,d,c:/file | cmp - file",
    );
}

#[test]
fn blocks_that_cannot_be_computed_are_reported_at_the_end() {
    let folder = scratch();
    script(folder.path(), "$L raid create a b c --size 16M -c 64K -q");
    name_as_bad(&folder.path().join("b"), 1024);
    script(
        folder.path(),
        "mkdir old; cp a b c old
         status=0; $L raid add md:missing,b,c new > seen 2> why || status=$?; test $status = 1
         grep 'new: in slot 0, rebuilt' seen; grep '1 blocks could not be computed' why
         cp old/* .; rm new
         status=0; $L raid add --json md:missing,b,c new > seen 2> why || status=$?
         test $status = 1; grep '\"unreadable_blocks\": 1' seen
         cp old/* .; rm new
         $L raid add --no-wait md:missing,b,c new
         status=0; $L raid recover --json md:new,b,c > seen 2> why || status=$?; test $status = 1
         grep '\"unreadable_blocks\": 1' seen; grep '1 blocks could not be computed' why
         no $L raid status md:new,b,c",
    );
}

#[test]
fn only_root_and_the_user_of_a_mount_change_its_members() {
    use std::os::unix::process::CommandExt;
    if !can_mount() {
        return;
    }
    let folder = scratch();
    script(
        folder.path(),
        "$L raid create a b c --size 24M --chunk 64K -q; $L mkfs md:a,b,c -q; mkdir mnt
         chmod 666 a b c; $L mount md:a,b,c mnt",
    );
    let mut other = Command::new(LANEFS);
    other.args(["raid", "fail", "md:a,b,c", "b"]).current_dir(folder.path()).uid(65534);
    let output = other.output().expect("lanefs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("only root and the owner of the mount"), "{said}");
    script(folder.path(), "$L raid status md:a,b,c | grep whole; $L umount mnt");
}

#[test]
fn umount_reports_how_the_server_ended() {
    if !can_mount() {
        return;
    }
    let folder = scratch();
    script(
        folder.path(),
        "$L raid create a b c --size 24M --chunk 64K -q; $L mkfs md:a,b,c -q; mkdir mnt
         $L mount md:a,b,c mnt; echo one > mnt/file; $L umount mnt
         # Two members are gone: what was written cannot be.
         $L mount md:a,b,c mnt; head -c 3000000 /dev/urandom > mnt/file; truncate -s 1M a b
         sync mnt/file 2>/dev/null || true
         if $L umount mnt 2> said; then echo 'it ended well'; exit 9; fi
         grep 'umount: mnt: unmounted, but its server ended with an error: ' said
         if mountpoint -q mnt; then exit 9; fi",
    );
    script(
        folder.path(),
        "$L mkfs disk.img --size 16M -q
         $L mount -f disk.img mnt & server=$!
         until mountpoint -q mnt; do sleep 0.01; done
         kill -9 $server; wait $server || true
         if $L umount mnt 2> said; then echo 'it ended well'; exit 9; fi
         grep 'its server ended before it closed the image' said
         if mountpoint -q mnt; then exit 9; fi
         # While the server dies, it may still answer, or have no files any more.
         for n in 1 2 3 4 5 6 7 8 9 10; do
             $L mount -f disk.img mnt & server=$!
             until mountpoint -q mnt; do sleep 0.01; done
             kill -9 $server
             if $L umount mnt 2> said; then echo 'it ended well'; exit 9; fi
             grep 'its server ended before it closed the image' said
             wait $server || true
         done
         $L mount disk.img mnt; $L umount disk.img",
    );
}

#[test]
fn an_array_is_unmounted_by_its_members_or_its_uuid() {
    if !can_mount() {
        return;
    }
    let folder = scratch();
    script(
        folder.path(),
        "U=01020304:05060708:090a0b0c:0d0e0f10
         $L raid create a b c --size 24M --chunk 64K -q --uuid $U
         $L mkfs md:a,b,c -q; mkdir mnt
         for name in mnt md:a,b,c md:c,missing,b md:$U,. md:b; do
             $L mount md:a,b,c mnt; $L umount $name
             if mountpoint -q mnt; then echo $name; exit 9; fi
         done
         no $L umount md:a,b,c",
    );
}

#[test]
#[ignore = "long: each system call of each command of raid fails once and is killed once"]
fn a_command_that_fails_or_is_killed_leaves_an_array_that_starts() {
    faults::each_command_fails_or_is_killed();
}
