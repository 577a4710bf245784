//! Compares getfattr, setfattr, getfacl and setfacl with the programs of the same names, which run
//! on the kernel's mount of the same image.

use crate::alike::{self, Modes, Names};
use crate::mounting::{Image, KernelMounted, LANEFS, assert_clean, can_mount, needs, run, shell};
use crate::trees::fill;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

fn lanefs(arguments: &[&str]) -> String {
    run(Command::new(LANEFS).args(arguments))
}

fn filled() -> Option<Image> {
    if !can_mount() {
        return None;
    }
    let image = Image::new("300M");
    let kernel = KernelMounted::new(&image.path, "kernel", "rw")?;
    fill(&kernel.path);
    drop(kernel);
    Some(image)
}

/// Returns the blocks of an output, sorted by file.
fn blocks(output: &str) -> Vec<&str> {
    let mut blocks: Vec<&str> = output.trim_end().split("\n\n").collect();
    blocks.sort_unstable();
    blocks
}

#[test]
fn getfattr_and_getfacl_print_what_the_programs_print() {
    let Some(image) = filled().filter(|_| needs("getfattr") && needs("getfacl")) else { return };
    let path = image.path.to_str().unwrap();
    let kernel = KernelMounted::new(&image.path, "kernel", "ro").unwrap();
    for options in
        ["", "-d", "-m -", "-d -m -", "-d -m - -e hex", "-d -m - -e base64", "-n user.note"]
    {
        let theirs = format!("getfattr -h -R {options} . 2> /dev/null || true");
        let theirs = shell(&kernel.path, &theirs);
        let ours = shell(Path::new("/"), &format!("{LANEFS} getfattr -h -R {options} {path}"));
        assert_eq!(blocks(&ours), blocks(&theirs), "getfattr {options}");
    }
    for options in ["", "-n", "-c", "-e", "-E", "-a", "-d", "-a -d", "-s", "-s -n"] {
        let theirs = shell(&kernel.path, &format!("getfacl -P -R {options} ."));
        let ours = shell(Path::new("/"), &format!("{LANEFS} getfacl -R {options} {path}"));
        assert_eq!(blocks(&ours), blocks(&theirs), "getfacl {options}");
    }
    let json = lanefs(&["getfacl", "--json", &format!("{path}:/sgid")]);
    let line: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&line["permissions"], &line["access"][1]["id"]), (&"2775".into(), &1234.into()));
    let json = lanefs(&["getfattr", "-d", "--json", &format!("{path}:/d/hello")]);
    let line: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(line["attributes"]["user.note"], "YSB2YWx1ZQ==");
}

#[test]
fn setfacl_and_setfattr_change_what_the_programs_change() {
    if !can_mount() || !needs("setfacl") || !needs("setfattr") {
        return;
    }
    let prepare =
        "mkdir -p d/sub; touch d/file d/sub/exec plain; chmod 755 d/sub/exec; chmod 640 plain";
    let (ours, theirs) = (Image::new("16M"), Image::new("16M"));
    for image in [&ours, &theirs] {
        let Some(kernel) = KernelMounted::new(&image.path, "kernel", "rw") else { return };
        shell(&kernel.path, prepare);
    }
    let path = ours.path.to_str().unwrap();
    for (command, files) in [
        ("setfacl -m u:1:rwx,g:2:r-x", "plain d/file"),
        ("setfacl -m g:3:rw", "plain"),
        ("setfacl -m m::r", "plain"),
        ("setfacl -m u::rw,o::r", "plain"),
        ("setfacl -n -m u:4:rwx", "plain"),
        ("setfacl -x u:1", "plain"),
        ("setfacl -m u:5:r", "d/file"),
        ("setfacl -m g::rw,m::r", "d/file"),
        ("setfacl -b", "d/file"),
        ("setfacl -m u:7:rX -R", "d"),
        ("setfacl -m d:u:8:rwx", "d"),
        ("setfacl -d -m g:9:rx,m::x", "d/sub"),
        ("setfacl -x d:u:8", "d"),
        ("setfacl -k", "d"),
        ("setfacl -b", "d/file"),
        ("setfacl --set u::rwx,g::rx,o::-,u:5:7", "d/sub/exec"),
        ("setfacl -m u:6:r,d:u:6:r -R", "d"),
        ("setfattr -n user.text -v 'a \"b\" c'", "plain"),
        ("setfattr -n user.octal -v '\"a\\012\\\\b\"'", "plain"),
        ("setfattr -n user.hex -v 0x00ff10", "plain"),
        ("setfattr -n user.base -v 0saGVsbG8=", "d"),
        ("setfattr -n user.empty", "d"),
        ("setfattr -x user.text", "plain"),
    ] {
        {
            let kernel = KernelMounted::new(&theirs.path, "kernel", "rw").unwrap();
            shell(&kernel.path, &format!("{command} {files}"));
        }
        let places: String = files.split(' ').map(|file| format!(" {path}:/{file}")).collect();
        shell(Path::new("/"), &format!("{LANEFS} {command}{places}"));
        let found = [&ours, &theirs].map(|image| {
            let kernel = KernelMounted::new(&image.path, "kernel", "ro").unwrap();
            shell(&kernel.path, "getfacl -R . ; find . | sort | xargs getfattr -h -d -m - -e hex")
        });
        assert_eq!(blocks(&found[0]), blocks(&found[1]), "{command}");
    }
    assert_clean(&ours.path);
}

#[test]
fn dumps_of_attributes_and_lists_restore_them() {
    let Some(image) = filled() else { return };
    let path = image.path.to_str().unwrap();
    let copy = image.copy("copy.img");
    let other = copy.to_str().unwrap();
    {
        let kernel = KernelMounted::new(&copy, "copy", "rw").unwrap();
        shell(
            &kernel.path,
            "find . -type f -print0 | xargs -0 chmod 600
            setfacl -R -b . ; setfacl -R -k . ; chown -R 0:0 . ; find . -type d -exec chmod 755 {} +
            find . -print0 | xargs -0 -n 50 setfattr -h -x user.note 2> /dev/null || true
            setfattr -x trusted.hidden d/e; setfattr -x user.dir d; setfattr -n user.big -v no d/hello",
        );
    }
    let attributes = format!(
        "{LANEFS} getfattr -R -h -d -m - {path} | {LANEFS} setfattr -h --restore - {other}"
    );
    let lists = format!("{LANEFS} getfacl -R {path} | {LANEFS} setfacl --restore - {other}");
    shell(Path::new("/"), &format!("{lists}; {attributes}"));
    assert_clean(&copy);
    // The output of getfacl -R omits symbolic links, so the owner of the link is not restored.
    let said =
        run(Command::new("sh").args(["-c", &format!("{LANEFS} diff {path} {other} || true")]));
    let expected = "! /d/short: owner 70000:70001 -> 0:0\n";
    assert_eq!(said, expected);
    let again = format!(
        "{LANEFS} getfattr -R -h -d -m - {other} | cmp - {}/dump",
        image.dir.path().display()
    );
    shell(
        Path::new("/"),
        &format!(
            "{LANEFS} getfattr -R -h -d -m - {path} > {}/dump; {again}",
            image.dir.path().display()
        ),
    );
}

#[test]
fn random_commands_do_as_the_programs() {
    if can_mount() && needs("setfacl") {
        alike::compare::<Modes>(1, 30);
        alike::compare::<Names>(1, 100);
    }
}

#[test]
#[ignore = "long: 780 random commands, more for LANEFS_SECONDS"]
fn many_random_commands_do_as_the_programs() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seconds = Duration::from_secs(number("LANEFS_SECONDS").unwrap_or(5));
    if !can_mount() || !needs("setfacl") {
        return;
    }
    let both = |seed| {
        alike::compare::<Modes>(seed, 60);
        alike::compare::<Names>(seed, 200);
    };
    if let Some(seed) = number("LANEFS_SEED") {
        return both(seed);
    }
    let first = number("LANEFS_FIRST_SEED").unwrap_or(1);
    let begun = Instant::now();
    for seed in first.. {
        both(seed);
        // Three seeds are 780 cases.
        if seed > first + 1 && begun.elapsed() > seconds {
            break;
        }
    }
}
