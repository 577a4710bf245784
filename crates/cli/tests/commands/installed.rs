//! What people get: the files of `make install`, completions in real shells, and the packages of
//! the crates.

use crate::mounting::{LANEFS, needs, run, scratch, try_run};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Installs this program into `dest` as scripts/dist does for the prefix /usr.
fn stage(dest: &Path) {
    let mut script = Command::new(root().join("scripts/stage"));
    run(script.args([LANEFS, "/usr", "/usr/sbin"]).env("DESTDIR", dest));
}

/// Adds the files and links below `dir` to `into`.
fn files_in(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap()) {
        match entry.file_type().unwrap().is_dir() {
            true => files_in(&entry.path(), into),
            false => into.push(entry.path()),
        }
    }
}

#[test]
fn make_uninstall_removes_what_make_install_put_there_and_nothing_else() {
    if !needs("make") {
        return;
    }
    let dir = scratch();
    let (dest, built) = (dir.path().join("dest"), dir.path().join("target/release"));
    fs::create_dir_all(&built).unwrap();
    std::os::unix::fs::symlink(LANEFS, built.join("lanefs")).unwrap();
    let foreign = dest.join("usr/local/share/man/man1/lane.1");
    fs::create_dir_all(foreign.parent().unwrap()).unwrap();
    fs::write(&foreign, "another program's").unwrap();
    // "-o build": the binary counts as built.
    let make = |target: &str| {
        let mut make = Command::new("make");
        make.arg("-C").arg(root()).args(["-s", "-o", "build", target]);
        make.arg(format!("DESTDIR={}", dest.display()));
        run(make.arg(format!("TARGET={}", dir.path().join("target").display())));
        let mut files = Vec::new();
        files_in(&dest, &mut files);
        files
    };
    let files = make("install");
    assert!(files.len() > 60, "{files:?}");
    assert!(run(Command::new(dest.join("usr/local/bin/lanefs")).arg("-V")).contains("lanefs"));
    for helper in ["mount", "mount.fuse", "mkfs", "fsck", "fsck.fuse"] {
        let link = dest.join(format!("sbin/{helper}.lanefs"));
        assert_eq!(fs::read_link(link).unwrap(), Path::new("/usr/local/bin/lanefs"));
        assert!(dest.join(format!("usr/local/share/man/man8/{helper}.lanefs.8")).exists());
    }
    // The folder that zsh searches below /usr/local.
    assert!(dest.join("usr/local/share/zsh/site-functions/_lanefs").exists());
    assert_eq!(make("uninstall"), [foreign]);
}

#[test]
fn staged_links_lead_to_the_program_and_man_reads_the_pages() {
    let dir = scratch();
    stage(dir.path());
    for helper in ["mount", "mount.fuse", "mkfs", "fsck", "fsck.fuse"] {
        let said =
            run(Command::new(dir.path().join(format!("usr/sbin/{helper}.lanefs"))).arg("-h"));
        let sub = helper.split('.').next().unwrap();
        assert!(said.contains(&format!("lanefs {sub}")), "{helper}: {said}");
    }
    if !needs("man") {
        return;
    }
    let man = |page: &str| {
        let mut man = Command::new("man");
        man.arg("-M").arg(dir.path().join("usr/share/man")).arg("--warnings=w").arg(page);
        man.env("MANPAGER", "cat").env("LC_ALL", "C.UTF-8").env("MANWIDTH", "100");
        let out = man.output().unwrap();
        let warnings = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.success() && warnings.is_empty(), "{page}: {warnings}");
        String::from_utf8(out.stdout).unwrap()
    };
    for (page, section) in
        [("lanefs-mkfs", "EXAMPLES"), ("fsck.lanefs", "EXIT STATUS"), ("lanefs", "FILES")]
    {
        assert!(man(page).contains(section), "{page} has no {section}");
    }
}

/// An interactive shell on a terminal of its own.
struct Shell {
    child: std::process::Child,
    said: String,
}

impl Shell {
    /// Starts a shell, and waits for its prompt, `READY>`. A shell that hangs is ended.
    fn start(command: &str, dir: &Path) -> Shell {
        let path = std::env::var("PATH").unwrap_or_default();
        let programs = Path::new(LANEFS).parent().unwrap().display();
        let child = Command::new("timeout")
            .args(["60", "script", "-qfec", command, "/dev/null"])
            .current_dir(dir)
            .env("PATH", format!("{programs}:{path}"))
            .env("TERM", "dumb")
            .env("ZDOTDIR", dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut shell = Shell { child, said: String::new() };
        shell.wait_for("READY>");
        shell
    }

    /// Types `keys`, and waits until the terminal shows `answer`.
    fn types(&mut self, keys: &str, answer: &str) {
        self.child.stdin.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
        self.wait_for(answer);
        self.wait_for("READY>");
    }

    fn wait_for(&mut self, text: &str) {
        let mut buffer = [0; 4096];
        loop {
            if let Some(at) = self.said.find(text) {
                self.said.drain(..at + text.len());
                return;
            }
            let len = self.child.stdout.as_mut().unwrap().read(&mut buffer).unwrap();
            assert!(len > 0, "{text:?} did not come: {}", self.said);
            self.said.push_str(&String::from_utf8_lossy(&buffer[..len]));
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Makes an image whose name and directories have blanks, beside the scripts that `stage` puts
/// below `usr`. `etc` holds the file "motd", "two words" the file "in side".
fn with_blanks() -> tempfile::TempDir {
    let dir = scratch();
    stage(dir.path());
    let image = dir.path().join("a b.img");
    run(Command::new(LANEFS).args(["mkfs", "-q"]).arg(&image).arg("16M"));
    let edit = [
        "mkdir /etc",
        "mkdir \"/two words\"",
        "write /etc/motd x",
        "write \"/two words/in side\" x",
    ];
    let commands = edit.iter().flat_map(|command| ["-c", command]);
    run(Command::new(LANEFS).arg("edit").arg(image).args(commands));
    dir
}

/// Completes in `shell` paths of the image of [`with_blanks`]. Each line is run; so the answer is
/// what `lanefs ls` says of the completed path.
fn completes_blanks(shell: &mut Shell) {
    shell.types("lanefs ls a\\ b.img:/et\t\n", "motd");
    shell.types("lanefs ls a\\ b.img:/tw\t\n", "in side");
    shell.types("lanefs ls a\\ b.img:/two\\ words/i\t\n", "/two words/in side");
}

#[test]
fn bash_completes_paths_with_blanks() {
    let main = "/usr/share/bash-completion/bash_completion";
    if !needs("script") || !needs("bash") {
        return;
    }
    if !Path::new(main).exists() {
        println!("skipped: there is no {main}");
        return;
    }
    let dir = with_blanks();
    let set_up = format!(
        ". {main}; . usr/share/bash-completion/completions/lanefs; PS1='READY> '; bind 'set enable-bracketed-paste off'"
    );
    fs::write(dir.path().join("rc"), set_up).unwrap();
    let mut bash = Shell::start("bash --noprofile --rcfile rc -i", dir.path());
    completes_blanks(&mut bash);
    std::os::unix::fs::symlink("a b.img", dir.path().join("it's.img")).unwrap();
    bash.types("lanefs ls it\\'s.img:/et\t\n", "motd");
    // Bash closes the quote, even after a directory.
    bash.types("lanefs ls \"a b.img:/et\t\n", "motd");
}

#[test]
fn zsh_completes_paths_with_blanks() {
    if !needs("script") || !needs("zsh") {
        return;
    }
    let dir = with_blanks();
    let set_up = "fpath=($PWD/usr/share/zsh/vendor-completions $fpath)
        autoload -U compinit; compinit -u -D; PS1='READY> '";
    fs::write(dir.path().join(".zshrc"), set_up).unwrap();
    let mut zsh = Shell::start("zsh -d -i", dir.path());
    completes_blanks(&mut zsh);
    zsh.types("lanefs ls \"a b.img:/et\t\"\n", "motd");
}

#[test]
fn fish_completes_paths_with_blanks() {
    if !needs("fish") {
        return;
    }
    let dir = with_blanks();
    let candidates = |line: &str| {
        let mut fish = Command::new("fish");
        fish.arg("--no-config").current_dir(dir.path()).env("HOME", dir.path());
        let path = std::env::var("PATH").unwrap_or_default();
        let programs = Path::new(LANEFS).parent().unwrap().display();
        fish.env("PATH", format!("{programs}:{path}"));
        let script = "source usr/share/fish/vendor_completions.d/lanefs.fish; complete -C $argv[1]";
        run(fish.args(["-c", script, line]))
    };
    assert_eq!(candidates("lanefs ls a\\ b.img:/et").trim(), "a b.img:/etc/");
    assert_eq!(candidates("lanefs ls \"a b.img:/et").trim(), "a b.img:/etc/");
    let inside = candidates("lanefs ls a\\ b.img:/two\\ words/i");
    assert_eq!(inside.trim(), "a b.img:/two words/in side");
}

/// Returns the answer of `cargo metadata` for this kind of machine.
fn metadata() -> Value {
    let cargo = std::env::var("CARGO").unwrap_or("cargo".into());
    let mut rustc = Command::new(Path::new(&cargo).with_file_name("rustc"));
    let said = run(rustc.arg("-vV"));
    let host = said.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    let mut command = Command::new(cargo);
    command.args(["metadata", "--format-version=1", "--locked", "--offline"]);
    let (status, said) = try_run(
        command.arg(format!("--filter-platform={host}")).current_dir(root()).stderr(Stdio::null()),
    );
    assert!(status.success(), "{said}");
    serde_json::from_str(said.trim()).unwrap()
}

/// Parses a version of Rust, which may lack its last number.
fn version(text: &str) -> Vec<u32> {
    text.split('.').map(|part| part.parse().unwrap()).chain([0, 0]).take(3).collect()
}

#[test]
fn crates_can_be_published_except_those_that_test() {
    let metadata = metadata();
    let members: HashSet<&str> = metadata["workspace_members"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let packages: Vec<&Value> = metadata["packages"].as_array().unwrap().iter().collect();
    let ours: Vec<&&Value> = packages
        .iter()
        .filter(|package| members.contains(package["id"].as_str().unwrap()))
        .collect();
    assert!(ours.len() > 10);
    let kept: HashSet<&str> = ours
        .iter()
        .filter(|package| package["publish"].as_array().is_some_and(Vec::is_empty))
        .map(|package| package["name"].as_str().unwrap())
        .collect();
    // lanefs-bench measures too, but the command contains it.
    assert_eq!(kept, HashSet::from(["lanefs-suites", "lanefs-trace"]));
    for package in ours {
        let name = package["name"].as_str().unwrap();
        for key in ["description", "license", "readme", "rust_version"] {
            assert!(package[key].as_str().is_some_and(|text| !text.is_empty()), "{name}: {key}");
        }
        for key in ["keywords", "categories"] {
            assert!(package[key].as_array().is_some_and(|list| !list.is_empty()), "{name}: {key}");
        }
        for dependency in package["dependencies"].as_array().unwrap() {
            let unpublished = kept.contains(dependency["name"].as_str().unwrap());
            let for_tests = dependency["kind"] == "dev";
            assert!(!unpublished || for_tests || kept.contains(name), "{name}: {dependency}");
        }
    }
}

/// The lint `clippy::incompatible_msrv`, on by default, says the same of the standard library.
#[test]
fn the_oldest_compiler_is_new_enough_for_all_libraries_and_no_c_compiler_is_needed() {
    let metadata = metadata();
    let packages: HashMap<&str, &Value> = metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|package| (package["id"].as_str().unwrap(), package))
        .collect();
    let nodes: HashMap<&str, &Value> = metadata["resolve"]["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| (node["id"].as_str().unwrap(), node))
        .collect();
    let command = packages.iter().find(|(_, package)| package["name"] == "lanefs-cli").unwrap();
    let stated = command.1["rust_version"].as_str().unwrap();
    let (mut left, mut seen) = (vec![*command.0], HashSet::new());
    while let Some(id) = left.pop() {
        if !seen.insert(id) {
            continue;
        }
        let package = packages[id];
        let name = package["name"].as_str().unwrap();
        let wants = package["rust_version"].as_str().unwrap_or("1.0");
        assert!(version(wants) <= version(stated), "{name} wants {wants}, we say {stated}");
        let builds_c = ["cc", "cmake", "bindgen", "pkg-config"].contains(&name);
        assert!(!builds_c, "{name} is needed to build");
        for dependency in nodes[id]["deps"].as_array().unwrap() {
            let kinds = dependency["dep_kinds"].as_array().unwrap();
            if kinds.iter().any(|kind| kind["kind"] != "dev") {
                left.push(dependency["pkg"].as_str().unwrap());
            }
        }
    }
    assert!(seen.len() > 50, "{}", seen.len());
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    assert!(readme.contains(&format!("Rust {stated}")), "README.md does not say Rust {stated}");
}
