//! A folder and a mount namespace in which ordinary users mount images.

#![allow(dead_code, reason = "each test program uses its own part")]

use super::mounting::*;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// The users of the tests: `ann` mounts, and `ben` is another user.
pub const ANN: u32 = 12345;
pub const BEN: u32 = 12346;

/// The beginning of each script: `ann COMMAND` and `ben COMMAND` run the command as these users.
/// `refused COMMAND` succeeds only if the command fails, and prints the message of the command.
pub const FUNCTIONS: &str = "
L=./lanefs
as() { n=$1; shift; setpriv --reuid=$n --regid=$n --clear-groups \"$@\"; }
ann() { as 12345 \"$@\"; }
ben() { as 12346 \"$@\"; }
refused() { if said=$(\"$@\" 2>&1); then echo \"not refused: $*\" >&2; exit 1; fi; echo \"$said\"; }
";

/// A folder with the program and the files that the namespace needs. If the host lacks something
/// that the tests require, `new` prints what is missing and returns `None`.
pub struct Scene {
    dir: tempfile::TempDir,
}

impl Scene {
    pub fn new() -> Option<Scene> {
        let programs = ["unshare", "setpriv", "fusermount3", "debugfs", "setfacl"];
        if !can_mount() || !programs.iter().all(|program| needs(program)) {
            return None;
        }
        let dir = scratch();
        let path = dir.path();
        let users = fs::read_to_string("/etc/passwd").unwrap();
        let users = format!("{users}ann:x:{ANN}:{ANN}::/:/bin/sh\nben:x:{BEN}:{BEN}::/:/bin/sh\n");
        fs::write(path.join("passwd"), users).unwrap();
        fs::write(path.join("fuse.conf"), "user_allow_other\n").unwrap();
        // The program under test is copied, because its folder may be closed to ordinary users.
        fs::copy(LANEFS, path.join("lanefs")).unwrap();
        fs::create_dir(path.join("mnt")).unwrap();
        shell(path, &format!("chmod 755 . lanefs; chown {ANN}:{ANN} . mnt"));
        Some(Scene { dir })
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    fn command(&self, script: &str) -> Command {
        let mut command = Command::new("unshare");
        let script = format!(
            "mount --bind passwd /etc/passwd; mount --bind fuse.conf /etc/fuse.conf\n\
             {FUNCTIONS}{script}"
        );
        command.args(["-m", "sh", "-euc", &script]).current_dir(self.path());
        command
    }

    /// Runs `script`, which must succeed, and returns its whole output.
    pub fn run(&self, script: &str) -> String {
        run(self.command(&format!("exec 2>&1\n{script}")).stdin(Stdio::null()))
    }

    /// Runs `script` as root of a user namespace, in which id 0 is ann, and ids 1 to 65536 are ids
    /// 100000 to 165535 of the host.
    pub fn run_in_namespace(&self, script: &str) -> String {
        fs::write(self.path().join("inside.sh"), format!("{FUNCTIONS}{script}")).unwrap();
        self.run(
            "mkfifo go; exec 3<>go
             (exec timeout 300 setpriv --reuid=12345 --regid=12345 --clear-groups \\
                 unshare -Um sh -euc 'echo $$ >pid; read line <go; exec sh -eu inside.sh') &
             while ! [ -s pid ]; do sleep 0.05; done; inner=$(cat pid)
             printf '0 12345 1\\n1 100000 65536\\n' >/proc/$inner/uid_map
             printf '0 12345 1\\n1 100000 65536\\n' >/proc/$inner/gid_map
             echo >&3; wait $!",
        )
    }

    /// Returns user, group and mode of a file of the image, as `debugfs` shows them.
    pub fn on_disk(&self, file: &str) -> (u32, u32, String) {
        let request = format!("stat {file}");
        let image = self.path().join("disk.img");
        let said = run(Command::new("debugfs").args(["-R", &request]).arg(&image));
        let after = |name: &str| {
            let (_, rest) = said.split_once(name).unwrap_or_else(|| panic!("{file}: {said}"));
            rest.split_whitespace().next().unwrap_or_default().to_owned()
        };
        let number = |name| after(name).parse().unwrap();
        (number("User:"), number("Group:"), after("Mode:"))
    }

    pub fn owner_on_disk(&self, file: &str) -> (u32, u32) {
        let (uid, gid, _) = self.on_disk(file);
        (uid, gid)
    }

    /// Checks that e2fsck finds nothing, and returns the output of `script` on a mount by the
    /// kernel's ext4.
    pub fn by_the_kernel(&self, script: &str) -> Option<String> {
        let image = self.path().join("disk.img");
        assert_clean(&image);
        let kernel = KernelMounted::new(&image, "kernel", "ro")?;
        Some(shell(&kernel.path, script))
    }
}

/// Makes a tree with owners, modes and links, and packs it.
pub fn pack(scene: &Scene) {
    shell(
        scene.path(),
        "mkdir -p tree/etc tree/home/ann tree/tmp
         echo root >tree/etc/shadow; chmod 640 tree/etc/shadow; chown 0:42 tree/etc/shadow
         echo hers >tree/home/ann/file; ln tree/home/ann/file tree/home/ann/link
         ln -s ../etc/shadow tree/home/away; chown -h 7:8 tree/home/away
         chown -R 1000:1001 tree/home/ann; chmod 1777 tree/tmp
         echo in >tree/tmp/in; chown 33:33 tree/tmp/in
         cp /bin/true tree/etc/su; chmod 4755 tree/etc/su
         tar -C tree -cpf tree.tar .",
    );
    fs::write(scene.path().join("survey.sh"), SURVEY).unwrap();
}

/// Prints types, modes, owners and link counts of a tree, sorted by name.
pub const SURVEY: &str =
    "find . -mindepth 1 -not -path ./lost+found -printf '%P %y %m %U:%G %n\\n' | sort";
