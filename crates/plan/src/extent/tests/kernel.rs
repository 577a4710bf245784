//! Reads trees that the kernel wrote, and checks planned trees with e2fsck and the kernel. Needs
//! root, loop devices and e2fsprogs; if they are missing, prints a message and passes.

use crate::extent::tests::*;
use lanefs_ondisk::checksum::Seed;
use lanefs_ondisk::extent::{seal, verify};
use std::fs;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const BLOCK: u64 = 1024;

/// An ext4 image with 1 KiB blocks in a file.
struct Image {
    dir: tempfile::TempDir,
    file: File,
    blocks: u64,
}

fn run(program: &str, args: &[&str]) -> Option<Output> {
    Command::new(program).args(args).output().ok()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

impl Image {
    fn new(mib: u64) -> Option<Image> {
        let dir = tempfile::tempdir_in("/dev/shm").ok()?;
        let path = dir.path().join("image");
        let file = File::options().create_new(true).read(true).write(true).open(&path).ok()?;
        file.set_len(mib << 20).ok()?;
        let options = "metadata_csum,64bit,^metadata_csum_seed";
        let made = run(
            "mke2fs",
            &["-q", "-F", "-t", "ext4", "-b", "1024", "-O", options, path.to_str()?],
        )?;
        made.status.success().then_some(Image { dir, file, blocks: (mib << 20) / BLOCK })
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    /// Runs `f` on the mounted file system; `None` if it cannot be mounted here.
    fn mounted<R>(&self, f: impl FnOnce(&Path) -> R) -> Option<R> {
        let at = self.dir.path().join("mounted");
        fs::create_dir_all(&at).expect("a directory");
        let (image, at_str) = (self.path(), at.to_str().expect("a plain path"));
        let mount = run("mount", &["-o", "loop", image.to_str().expect("a plain path"), at_str])?;
        if !mount.status.success() {
            return None;
        }
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| f(&at)));
        let unmounted = run("umount", &[at_str]).expect("what mounts can unmount");
        assert!(unmounted.status.success(), "{unmounted:?}");
        Some(result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }

    fn debugfs(&self, commands: &str) -> String {
        let script = self.dir.path().join("script");
        File::create(&script).and_then(|mut f| f.write_all(commands.as_bytes())).expect("a script");
        let args =
            ["-w", "-f", script.to_str().expect("plain"), self.path().to_str().expect("plain")]
                .map(str::to_owned);
        text(&Command::new("debugfs").args(args).output().expect("debugfs runs"))
    }

    /// Returns the root of the tree of `name`, from debugfs's dump of `i_block`.
    fn root(&self, name: &str) -> [u8; ROOT_BYTES] {
        let dump = self.debugfs(&format!("inode_dump -b {name}\n"));
        let mut bytes = Vec::<u8>::new();
        for line in dump.lines() {
            let offset = line.get(..4).and_then(|word| usize::from_str_radix(word, 8).ok());
            let Some(offset) = offset else { continue };
            while bytes.len() < offset {
                bytes.extend_from_within(bytes.len() - 16..); // a `*`: rows like the one before
            }
            let digits: Vec<u8> = line[5..45].bytes().filter(u8::is_ascii_hexdigit).collect();
            let digits = std::str::from_utf8(&digits).expect("hex digits").to_owned();
            bytes.extend(
                (0..digits.len())
                    .step_by(2)
                    .map(|i| u8::from_str_radix(&digits[i..i + 2], 16).expect("hex digits")),
            );
        }
        while bytes.len() < ROOT_BYTES {
            bytes.extend_from_within(bytes.len() - 16..);
        }
        bytes[..ROOT_BYTES].try_into().expect("60 bytes")
    }

    /// Returns the checksum seed of the file's nodes, computed from UUID, inode number and
    /// generation.
    fn seed(&self, name: &str) -> (Ino, Seed) {
        let stat = self.debugfs(&format!("stat {name}\n"));
        let number = |key: &str| -> u32 {
            let rest = stat.split_once(key).expect(key).1.trim_start();
            rest.split_whitespace().next().and_then(|word| word.parse().ok()).expect(key)
        };
        let mut uuid = [0; 16];
        self.file.read_exact_at(&mut uuid, 1024 + 0x68).expect("a superblock");
        let (ino, generation) = (Ino(number("Inode:")), number("Generation:"));
        (ino, Seed::of_uuid(&uuid).of_inode(ino, generation))
    }

    /// Returns the extents that debugfs lists in the leaves.
    fn listed(&self, name: &str) -> Vec<Extent> {
        let listing = self.debugfs(&format!("ex {name}\n"));
        let extents = listing.lines().filter_map(|line| {
            let spaced = line.replace(['/', '-'], " ");
            let numbers: Vec<u64> =
                spaced.split_whitespace().map_while(|word| word.parse().ok()).collect();
            let [level, depth, _, _, start, _, block, _, len] = numbers[..] else { return None };
            let state = if line.contains("Uninit") { State::Unwritten } else { State::Written };
            (level == depth).then(|| extent(start as u32, len as u32, block, state))
        });
        extents.collect()
    }
}

/// The nodes in an image; the checksum of each is verified.
struct OnDisk<'a> {
    image: &'a Image,
    seed: Seed,
}

impl Nodes for OnDisk<'_> {
    fn node(&self, block: Block) -> Result<Arc<[u8]>, Error> {
        let mut bytes = vec![0; BLOCK as usize];
        self.image.file.read_exact_at(&mut bytes, block.0 * BLOCK).expect("a block");
        verify(&bytes, self.seed).expect("the kernel sealed it");
        Ok(bytes.into())
    }
}

/// Creates an image with a file `f` of `blocks` blocks, half of them written. Of the first
/// `punched` blocks, every other one is a hole.
fn fragmented(mib: u64, blocks: u64, punched: u64) -> Option<Image> {
    use rustix::fs::{FallocateFlags, fallocate};
    let Some(image) = Image::new(mib) else {
        eprintln!("skipped: mke2fs is not here");
        return None;
    };
    let made = image.mounted(|at| {
        let file = File::create(at.join("f")).expect("a file");
        file.write_all_at(&vec![7; (blocks / 2 * BLOCK) as usize], 0).expect("half of it");
        fallocate(&file, FallocateFlags::empty(), 0, blocks * BLOCK).expect("the other half");
        file.sync_all().expect("allocated");
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        for at in (0..punched).step_by(2) {
            fallocate(&file, punch, at * BLOCK, BLOCK).expect("a hole");
        }
    });
    if made.is_none() {
        eprintln!("skipped: no loop mounts here");
    }
    made.map(|()| image)
}

#[test]
fn a_tree_of_the_kernel_is_read_as_debugfs_lists_it() {
    for (mib, blocks, punched, depth) in
        [(16, 100, 0, 0), (16, 1000, 300, 1), (32, 9000, 8000, 2), (160, 80_000, 70_000, 3)]
    {
        let Some(image) = fragmented(mib, blocks, punched) else { return };
        let (root, (ino, seed)) = (image.root("f"), image.seed("f"));
        let limits = Limits::new(ino, BlockSize::new(1024).expect("1 KiB"), 2..image.blocks);
        let map = load(&root, &OnDisk { image: &image, seed }, &limits).expect("a right tree");
        assert_eq!(u16::from_le_bytes([root[6], root[7]]), depth);
        assert_eq!(map.iter().collect::<Vec<_>>(), image.listed("f"));
        assert_eq!(map.blocks(), blocks - punched / 2);
    }
}

/// Replaces the tree of `f` by `tree`, and the data by recognisable bytes.
fn install(image: &Image, tree: &Tree, seed: Seed) {
    for (block, bytes) in &tree.blocks {
        let mut bytes = bytes.to_vec();
        seal(&mut bytes, seed);
        image.file.write_all_at(&bytes, block.0 * BLOCK).expect("a node");
    }
    let map = tree.load();
    for extent in map.iter() {
        for block in extent.block.0..extent.block.0 + u64::from(extent.len) {
            image.file.write_all_at(&pattern(block), block * BLOCK).expect("data");
        }
    }
    let sectors = (map.blocks() + tree.blocks.len() as u64) * 2;
    let mut script = format!("sif f blocks {sectors}\n");
    let words = tree.root.chunks_exact(4).map(|word| word.try_into().map(u32::from_le_bytes));
    for (i, word) in words.enumerate() {
        let at = ["IND", "DIND", "TIND"].get(i.wrapping_sub(12)).map(|name| name.to_string());
        let at = at.unwrap_or(i.to_string());
        script += &format!("sif f block[{at}] {}\n", word.expect("four bytes"));
    }
    image.debugfs(&script);
    assert_eq!(image.root("f"), tree.root);
}

fn pattern(block: u64) -> [u8; BLOCK as usize] {
    let mut bytes = [0; BLOCK as usize];
    bytes.chunks_exact_mut(8).for_each(|chunk| chunk.copy_from_slice(&block.to_le_bytes()));
    bytes
}

#[test]
fn a_tree_planned_here_is_right_for_e2fsck_and_the_kernel() {
    const BLOCKS: u32 = 24_000;
    let mut rng = seeded("a_tree_planned_here");
    let Some(image) = fragmented(32, u64::from(BLOCKS), 0) else { return };
    let (ino, seed) = image.seed("f");
    // The file's blocks are reassigned. The blocks of its last extent become nodes.
    let mut extents = image.listed("f");
    let nodes = extents.pop().expect("more than one extent");
    let mut pool: Vec<u64> =
        extents.iter().flat_map(|e| e.block.0..e.block.0 + u64::from(e.len)).collect();
    let block_size = BlockSize::new(1024).expect("1 KiB");
    let limits = Limits::new(ino, block_size, 2..image.blocks);
    let mut tree = Tree { limits, next: nodes.block.0, ..Tree::new(84) };
    for _ in 0..3000 {
        let start = rng.u32(0..BLOCKS - 20);
        let range = start..start + rng.u32(1..20);
        let mut with = Vec::new();
        for at in range.clone() {
            if rng.u32(0..4) == 0 {
                continue;
            }
            let state = if at % 50 < 30 { State::Written } else { State::Unwritten };
            with.push(extent(at, 1, pool.swap_remove(rng.usize(0..pool.len())), state));
        }
        let gone = overlapping(&tree.load(), range.clone());
        pool.extend(gone.iter().flat_map(|e| e.block.0..e.block.0 + u64::from(e.len)));
        tree.replace(range, &with);
    }
    assert!(tree.depth() >= 2 && tree.next < nodes.block.0 + u64::from(nodes.len));
    install(&image, &tree, seed);

    let path = image.path();
    let check = run("e2fsck", &["-fn", path.to_str().expect("plain")]).expect("e2fsck runs");
    let said = text(&check);
    // e2fsck should report blocks without an owner. About the file itself it may print advice, but
    // no error.
    let about_the_file = |line: &&str| line.starts_with("Inode") && !line.contains("could be");
    let pass_1 = said.split_once("Pass 2").expect("pass 1 ended").0;
    assert_eq!(pass_1.lines().find(about_the_file), None);
    let fixed = run("e2fsck", &["-fy", path.to_str().expect("plain")]).expect("e2fsck runs");
    assert_eq!(fixed.status.code(), Some(1));
    image.mounted(|at| {
        let data = fs::read(at.join("f")).expect("the kernel reads it");
        let table = table_of(tree.load().iter());
        for (at, found) in data.chunks_exact(BLOCK as usize).enumerate() {
            let expected = match table.get(&(at as u32)) {
                Some((block, State::Written)) => pattern(*block),
                _ => [0; BLOCK as usize],
            };
            assert!(found == expected, "file block {at}");
        }
    });
}
