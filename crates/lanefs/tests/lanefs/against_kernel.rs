//! Compares paths and permissions with the kernel's ext4. The kernel and the library run the same
//! operations on two copies of one image, and must return the same results and error numbers.

use crate::images;

use crate::images::{Image, KernelMounted, assert_clean, can_mount, needs, run, shell};
use lanefs::{Credentials, FileOptions, FileSystem, OpenOptions};
use std::io::{BufRead, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

/// An environment variable for the child process that runs the kernel's side. Its value is the path
/// of the child's tree.
const TREE: &str = "LANEFS_TEST_TREE";
/// An environment variable that, if set, makes the child change its root directory to the tree of
/// [`TREE`].
const AS_ROOT: &str = "LANEFS_TEST_AS_ROOT";

/// The number of steps in a run.
const STEPS: usize = 4000;

#[derive(Debug, Clone)]
struct Step {
    what: &'static str,
    path: String,
    other: String,
}

const OPERATIONS: [&str; 20] = [
    "stat",
    "stat",
    "lstat",
    "readlink",
    "read",
    "write",
    "create",
    "create-new",
    "truncate",
    "directory",
    "no-follow",
    "mkdir",
    "mkdir",
    "rmdir",
    "unlink",
    "rename",
    "rename",
    "symlink",
    "link",
    "create-no-follow",
];

const NAMES: [&str; 12] =
    ["a", "b", "f", "g", "to-a", "to-f", "up", "loop", "nowhere", "root", "new", "slash"];

fn path(random: &mut fastrand::Rng, dots: bool) -> String {
    let mut path = String::new();
    if dots && random.u8(..6) == 0 {
        path.push('/');
    }
    for n in 0..random.usize(1..5) {
        if n > 0 {
            path.push_str(if random.u8(..12) == 0 { "//" } else { "/" });
        }
        match random.u8(..24) {
            0 | 1 if dots => path.push('.'),
            2 | 3 if dots => path.push_str(".."),
            4 if random.u8(..4) == 0 => path.push_str(&"x".repeat(random.usize(254..258))),
            _ => path.push_str(NAMES[random.usize(..NAMES.len())]),
        }
    }
    if random.u8(..6) == 0 {
        path.push('/');
    }
    path
}

fn steps(random: &mut fastrand::Rng, dots: bool) -> Vec<Step> {
    let step = |_| Step {
        what: OPERATIONS[random.usize(..OPERATIONS.len())],
        path: path(random, dots),
        other: path(random, dots),
    };
    (0..STEPS).map(step).collect()
}

fn fill(dir: &Path) {
    shell(
        dir,
        "mkdir -p a/a a/b b/a; echo f > f; echo af > a/f; echo bf > b/f; ln -s a to-a; ln -s f to-f
         ln -s a/b a/to-a; ln -s ../f b/to-f; ln -s .. a/up; ln -s loop loop; ln -s /a/b b/root
         ln -s nothing nowhere; ln -s new/ a/slash; ln -s a/ slash",
    );
}

/// This is not a test itself; the other tests run it as their child process.
#[test]
fn the_kernels_side() {
    let Some(tree) = std::env::var_os(TREE) else { return };
    if std::env::var_os(AS_ROOT).is_some() {
        std::os::unix::fs::chroot(&tree).unwrap();
        std::env::set_current_dir("/").unwrap();
    } else {
        std::env::set_current_dir(&tree).unwrap();
    }
    let mut out = std::io::stderr().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let mut words = line.split('\t');
        let mut word = || words.next().unwrap().to_owned();
        let outcome = by_kernel(&word(), &word(), &word());
        writeln!(out, "={}", outcome_text(outcome)).unwrap();
    }
}

fn outcome_text(outcome: Result<String, i32>) -> String {
    match outcome {
        Ok(text) => format!("ok {text}"),
        Err(errno) => std::io::Error::from_raw_os_error(errno).to_string(),
    }
}

fn by_kernel(what: &str, path: &str, other: &str) -> Result<String, i32> {
    use std::fs;
    const NO_FOLLOW: i32 = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
    const DIRECTORY: i32 = rustix::fs::OFlags::DIRECTORY.bits() as i32;
    let plain = || fs::OpenOptions::new();
    let outcome = match what {
        "stat" => fs::metadata(path).map(|m| brief(m.mode(), m.size())),
        "lstat" => fs::symlink_metadata(path).map(|m| brief(m.mode(), m.size())),
        "readlink" => fs::read_link(path).map(|target| target.display().to_string()),
        "read" => plain().read(true).open(path).map(|_| String::new()),
        "write" => plain().write(true).open(path).map(|_| String::new()),
        "create" => plain().write(true).create(true).open(path).map(|_| String::new()),
        "create-new" => plain().write(true).create_new(true).open(path).map(|_| String::new()),
        "create-no-follow" => plain()
            .write(true)
            .create(true)
            .custom_flags(NO_FOLLOW)
            .open(path)
            .map(|_| String::new()),
        "truncate" => plain().write(true).truncate(true).open(path).map(|_| String::new()),
        "directory" => plain().read(true).custom_flags(DIRECTORY).open(path).map(|_| String::new()),
        "no-follow" => plain().read(true).custom_flags(NO_FOLLOW).open(path).map(|_| String::new()),
        "mkdir" => fs::create_dir(path).map(|()| String::new()),
        "rmdir" => fs::remove_dir(path).map(|()| String::new()),
        "unlink" => rustix::fs::unlink(path).map(|()| String::new()).map_err(Into::into),
        "rename" => fs::rename(path, other).map(|()| String::new()),
        "symlink" => std::os::unix::fs::symlink(other, path).map(|()| String::new()),
        "link" => rustix::fs::link(other, path).map(|()| String::new()).map_err(Into::into),
        what => panic!("{what}"),
    };
    outcome.map_err(|error| error.raw_os_error().unwrap())
}

/// Returns type and size. The size of a directory is left out, since it may differ between the
/// kernel and the library.
fn brief(mode: u32, size: u64) -> String {
    let is_dir = mode & 0o170_000 == 0o040_000;
    format!("{:o} {}", mode & 0o170_000, if is_dir { 0 } else { size })
}

fn by_us(fs: &FileSystem, what: &str, path: &str, other: &str) -> Result<String, i32> {
    let options = FileOptions::new();
    let open = |options: FileOptions| fs.open_file_with(path, &options).map(|_| String::new());
    let describe = |m: lanefs::Metadata| brief(m.attr().mode().into(), m.len());
    let outcome = match what {
        "stat" => fs.metadata(path).map(describe),
        "lstat" => fs.symlink_metadata(path).map(describe),
        "readlink" => fs.read_link(path).map(|target| target.display().to_string()),
        "read" => open(options.read(true)),
        "write" => open(options.write(true)),
        "create" => open(options.write(true).create(true)),
        "create-new" => open(options.write(true).create_new(true)),
        "create-no-follow" => open(options.write(true).create(true).no_follow(true)),
        "truncate" => open(options.write(true).truncate(true)),
        "directory" => open(options.read(true).directory(true)),
        "no-follow" => open(options.read(true).no_follow(true)),
        "mkdir" => fs.create_dir(path).map(|()| String::new()),
        "rmdir" => fs.remove_dir(path).map(|()| String::new()),
        "unlink" => fs.remove_file(path).map(|()| String::new()),
        "rename" => fs.rename(path, other).map(|()| String::new()),
        "symlink" => fs.symlink(other, path).map(|()| String::new()),
        "link" => fs.hard_link(other, path).map(|()| String::new()),
        what => panic!("{what}"),
    };
    outcome.map_err(|error| error.errno())
}

/// Runs the steps on the kernel's side in a child process. In the child's command line, `launcher`
/// precedes the path of this test program.
fn ask_kernel(launcher: &[&str], tree: &Path, as_root: bool, steps: &[Step]) -> Vec<String> {
    let program = std::env::current_exe().unwrap();
    let mut line: Vec<&std::ffi::OsStr> = launcher.iter().map(|word| word.as_ref()).collect();
    line.push(program.as_os_str());
    let mut command = Command::new(line[0]);
    command.args(&line[1..]).args(["--exact", "against_kernel::the_kernels_side", "--nocapture"]);
    command.env(TREE, tree).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    if as_root {
        command.env(AS_ROOT, "1");
    }
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let lines: String =
        steps.iter().map(|s| format!("{}\t{}\t{}\n", s.what, s.path, s.other)).collect();
    let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    said.lines().filter_map(|line| line.strip_prefix('=')).map(str::to_owned).collect()
}

fn compare(fs: &FileSystem, steps: &[Step], kernel: &[String]) {
    assert_eq!(kernel.len(), steps.len());
    for (n, (step, theirs)) in steps.iter().zip(kernel).enumerate() {
        let ours = outcome_text(by_us(fs, step.what, &step.path, &step.other));
        if ours != *theirs {
            show(fs, fs.vfs().root(), "");
        }
        assert_eq!(ours, *theirs, "step {n}: {step:?} (ours, the kernel's)");
    }
}

/// Prints the tree, including parts that the user has no permission to read.
fn show(fs: &FileSystem, dir: &lanefs_ext4::InodeRef, path: &str) {
    let (vfs, root) = (fs.vfs(), Credentials::superuser());
    let mut names = Vec::new();
    let each = &mut |entry: &lanefs_ext4::DirEntry<'_>| {
        names.push(entry.name.to_vec());
        std::ops::ControlFlow::Continue(())
    };
    vfs.fs().read_dir(dir, 0, each).unwrap();
    for name in names.iter().filter(|name| *name != b"." && *name != b"..") {
        let inode = vfs.lookup(&root, dir, name).unwrap();
        let path = format!("{path}/{}", String::from_utf8_lossy(name));
        let attr = inode.attr();
        let target = vfs.fs().read_link(&inode).unwrap_or_default();
        let target = String::from_utf8_lossy(&target);
        println!("{path} {:o} {}:{} {target}", attr.mode(), attr.uid, attr.gid);
        if attr.file_type == lanefs::FileType::Directory {
            show(fs, &inode, &path);
        }
    }
}

#[test]
fn random_paths_end_where_they_do_in_the_kernel() {
    if !can_mount() {
        return;
    }
    let mut random = fastrand::Rng::with_seed(images::seed());
    let image = Image::new("32M");
    {
        let Some(kernel) = KernelMounted::new(&image.path, "kernel", "rw") else { return };
        fill(&kernel.path);
    }
    let copy = image.copy("copy.img");
    let steps = steps(&mut random, true);
    let kernel = {
        let kernel = KernelMounted::new(&image.path, "kernel", "rw").unwrap();
        run(Command::new("chmod").arg("755").arg(&kernel.path));
        ask_kernel(&["env"], &kernel.path, true, &steps)
    };
    let fs = FileSystem::open(&copy).unwrap();
    fs.set_permissions("/", 0o755).unwrap();
    compare(&fs, &steps, &kernel);
    fs.close().unwrap();
    assert_clean(&copy);
}

#[test]
fn an_ordinary_user_has_the_rights_that_the_kernel_gives() {
    if !can_mount() || !needs("setpriv") || !needs("setfacl") {
        return;
    }
    let mut random = fastrand::Rng::with_seed(images::seed());
    let image = Image::new("32M");
    let protect: Vec<String> = ["a", "a/a", "a/b", "b", "b/a", "f", "a/f", "b/f", "."]
        .iter()
        .map(|name| {
            // The child process must be able to enter the tree.
            let open = *name == "." || random.bool();
            let mode = random.u16(..0o10000) | if open { 0o111 } else { 0 };
            let (uid, gid) = (random.u32(1000..1002), random.u32(1000..1003));
            let mut line = format!("chown {uid}:{gid} {name}; chmod {mode:o} {name}");
            if *name != "." && random.u8(..3) == 0 {
                let (user, group) = (random.u32(1000..1003), random.u32(1000..1003));
                let mut class = || ["---", "r--", "rw-", "rwx", "--x", "-wx"][random.usize(..6)];
                let list = format!("u:{user}:{},g:{group}:{},m::{}", class(), class(), class());
                line += &format!("; setfacl -m {list} {name}");
            }
            line
        })
        .collect();
    println!("{protect:#?}");
    {
        let Some(kernel) = KernelMounted::new(&image.path, "kernel", "rw") else { return };
        fill(&kernel.path);
        // Removes links that could refer to paths outside of the tree if a step moved them.
        shell(&kernel.path, "rm b/to-f b/root a/up");
        shell(&kernel.path, &protect.join("\n"));
    }
    let copy = image.copy("copy.img");
    // The steps have no "..", since the directories above the kernel's tree belong to the host.
    let mut steps = steps(&mut random, false);
    steps.retain(|step| !step.path.contains("up") && !step.path.contains("root"));
    // In a sticky directory, the kernel refuses this step because of a rule that Lanefs does not
    // have (`protected_regular`).
    steps.retain(|step| step.what != "create-no-follow");
    steps.retain(|step| !step.other.contains("up") && !step.other.contains("root"));
    let who = ["setpriv", "--reuid=1000", "--regid=1000", "--groups=1002", "--"];
    let kernel = {
        let kernel = KernelMounted::new(&image.path, "kernel", "rw").unwrap();
        let links = "/proc/sys/fs/protected_hardlinks";
        if std::fs::read_to_string(links).is_ok_and(|value| value.trim() != "0") {
            // The rule `protected_hardlinks` belongs to the kernel's VFS, not to a file system, so
            // Lanefs does not have it.
            steps.retain(|step| step.what != "link");
        }
        let program = std::env::current_exe().unwrap();
        assert!(program.metadata().unwrap().mode() & 0o005 == 0o005);
        ask_kernel(&who, &kernel.path, false, &steps)
    };
    let user = Credentials::new(1000, 1000, [1002]);
    let fs = FileSystem::open_with(&copy, &OpenOptions::new().credentials(user)).unwrap();
    compare(&fs, &steps, &kernel);
    fs.close().unwrap();
    assert_clean(&copy);
}
