//! Directories with an index of three levels (`large_dir`).

use lanefs_device::{OverlayDevice, RamDevice};
use lanefs_ext4::{Error, Fs, Mount, MountOptions};
use lanefs_suites::crash::states::every_state;
use lanefs_suites::hostile::words::Words;
use lanefs_suites::image::Image;
use lanefs_suites::large_dir::{OPTIONS, full_of_two_levels, levels, link_by_kernel, name};
use lanefs_suites::library::Library;
use std::collections::BTreeSet;
use std::sync::Arc;

fn link(fs: &Arc<Fs>, n: usize) -> Result<(), Error> {
    let library = Library::new(fs);
    fs.link(&library.resolve(b"file")?, &library.resolve(b"d")?, name(n).as_bytes())
}

fn names_in(fs: &Fs) -> Result<BTreeSet<Vec<u8>>, String> {
    let dir = fs.root().and_then(|root| fs.lookup(&root, b"d"));
    let named = dir.map_err(|e| e.to_string())?.ok_or("no directory")?;
    let dir = fs.get(named.ino, None).map_err(|e| e.to_string())?;
    let names = lanefs_suites::listing::library_names(fs, &dir).map_err(|e| e.to_string())?;
    let count = names.len();
    let names: BTreeSet<_> = names.into_iter().map(|(name, _)| name).collect();
    if names.len() == count { Ok(names) } else { Err("a name is listed twice".into()) }
}

fn mount(image: &Image) -> Mount {
    Mount::open(image.device(), MountOptions::default()).expect("Lanefs mounts it")
}

#[test]
#[ignore = "long: 30,000 names"]
fn a_third_level_is_grown_by_lanefs_and_used_by_the_kernel_and_reverse() {
    let Some((image, refused)) = full_of_two_levels(OPTIONS) else { return };
    assert_eq!(levels(&image), 1);
    let end = refused + 500;
    let mounted = mount(&image);
    for n in refused..end {
        link(mounted.fs(), n).expect("the third level has room");
    }
    mounted.close().expect("it unmounts");
    assert_eq!(levels(&image), 2);
    image.assert_clean("grown by Lanefs");

    let Some(kernel) = image.kernel_mount("noatime") else { return };
    for n in (0..end).step_by(97) {
        assert!(kernel.path().join("d").join(name(n)).exists(), "the kernel finds name {n}");
    }
    let more = link_by_kernel(&kernel, end, end + 1000);
    for n in (0..more).filter(|n| n % 3 != 0) {
        std::fs::remove_file(kernel.path().join("d").join(name(n))).expect("the kernel removes");
    }
    kernel.unmount();
    image.assert_clean("changed by the kernel");

    let mounted = mount(&image);
    let kept: BTreeSet<_> = (0..more).step_by(3).map(|n| name(n).into_bytes()).collect();
    assert!(names_in(mounted.fs()).expect("a listing") == kept);
    let library = Library::new(mounted.fs());
    let dir = library.resolve(b"d").expect("the directory");
    for name in &kept {
        mounted.fs().unlink(&dir, name).expect("a name is removed");
    }
    drop(dir);
    let root = mounted.fs().root().expect("the root");
    mounted.fs().rmdir(&root, b"d").expect("an empty directory is removed");
    drop((root, library));
    mounted.close().expect("it unmounts");
    image.assert_clean("emptied by Lanefs");
}

#[test]
#[ignore = "long: 30,000 names"]
fn a_third_level_exists_after_a_crash_or_does_not() {
    let Some((image, refused)) = full_of_two_levels(OPTIONS) else { return };
    let ram = RamDevice::from_file(image.path()).expect("the image is read");
    let device = OverlayDevice::new(Arc::new(ram), u64::MAX);
    let work = |fs: &Arc<Fs>| {
        link(fs, refused)?;
        fs.sync()
    };
    let sound = |fs: &Arc<Fs>| {
        let names = names_in(fs)?;
        let expected = [refused, refused + 1].contains(&names.len());
        if !expected {
            return Err(format!("{} names of {refused} or one more", names.len()));
        }
        // The crash may or may not have kept the third level and the new name. In both cases,
        // adding the name now succeeds or reports that the name exists.
        match link(fs, refused) {
            Ok(()) | Err(Error::Exists) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    };
    let states = every_state(device, &work, &sound).unwrap_or_else(|why| panic!("{why}"));
    println!("{states} crash states");
    assert!(states > 5, "{states}");
}

/// Returns the offsets of the blocks of `/d` in the image.
fn blocks(image: &Image) -> Vec<u64> {
    let said = image.debugfs("blocks /d");
    let numbers = said.split_whitespace().map(|number| number.parse::<u64>().expect("a block"));
    numbers.map(|block| block * 1024).collect()
}

#[test]
#[ignore = "long: 30,000 names"]
fn damage_to_each_level_is_named() {
    let options = format!("{OPTIONS} -O ^metadata_csum,^metadata_csum_seed");
    let Some((image, refused)) = full_of_two_levels(&options) else { return };
    let mounted = mount(&image);
    link(mounted.fs(), refused).expect("the third level has room");
    mounted.close().expect("it unmounts");
    let places = blocks(&image);
    let words = Words::of(&image);
    let get = |at| words.get(at);
    // The block number in the first entry is at offset 0x24 in the root, and at offset 0x0c in a
    // node.
    let root = places[0];
    let upper = get(root + 0x24);
    let lower = get(places[upper as usize] + 0x0c);
    let (upper_at, lower_at) = (places[upper as usize], places[lower as usize]);
    let levels = get(root + 0x1c) & 0xff00_ffff;
    for (what, at, value) in [
        ("an index of 3 levels below the root", root + 0x1c, levels | 3 << 16),
        ("a node that is its own child", upper_at + 0x0c, upper),
        ("a node whose child is the root", upper_at + 0x0c, 0),
        ("a lower node whose child is the upper node", lower_at + 0x0c, upper),
        ("a child beyond the end", lower_at + 0x0c, 0x0fff_0000),
        ("an upper node without entries", upper_at + 8, 126),
        ("a lower node of too many entries", lower_at + 8, 0xffff_007f),
        ("a lower node with another limit", lower_at + 8, 0x0001_ffff),
    ] {
        let outcome = words.check(what, &[(at, value)]);
        assert!(outcome.says("directory inode"), "{what}: {:?}", outcome.errors);
    }
    // If the index has one level less, its lowest nodes are read as leaves. Without checksums, a
    // node looks like an empty leaf, so no error names the missing level.
    let less = [(root + 0x1c, levels | 1 << 16)];
    assert!(words.check("an index with one level less", &less).mounted);
}
