//! Compares how Lanefs and the kernel treat access control lists; the kernel's lists are on a
//! tmpfs.

use fastrand::Rng;
use lanefs_ondisk::acl::{Acl, AclEntry, Owner, Permissions, Subject, Tag};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Output};

fn rng(test: &str) -> Rng {
    let seed = std::env::var("LANEFS_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("{test}: LANEFS_SEED={seed}");
    Rng::with_seed(seed)
}

fn random_acl(rng: &mut Rng) -> Acl {
    let mut entries = Vec::new();
    let mut push = |rng: &mut Rng, tag| {
        entries.push(AclEntry { tag, permissions: Permissions::from_bits(rng.u16(..)) });
    };
    push(rng, Tag::Owner);
    let (users, groups) = (rng.usize(..3), rng.usize(..3));
    for uid in [1001, 1002].into_iter().take(users) {
        push(rng, Tag::User(uid));
    }
    push(rng, Tag::OwningGroup);
    for gid in [5, 6].into_iter().take(groups) {
        push(rng, Tag::Group(gid));
    }
    if users + groups > 0 || rng.bool() {
        push(rng, Tag::Mask);
    }
    push(rng, Tag::Other);
    Acl::new(entries).expect("valid")
}

fn run(command: &mut Command) -> Output {
    command.output().expect("it is installed")
}

/// Sets a list; returns `false` if the kernel refuses it for lack of privilege or support.
fn set(path: &Path, name: &str, acl: &Acl) -> bool {
    let hex: String = acl.to_system().iter().map(|byte| format!("{byte:02x}")).collect();
    let value = format!("0x{hex}");
    run(Command::new("setfattr").args(["-n", name, "-v", &value]).arg(path)).status.success()
}

/// Returns the list stored by the kernel, if there is one.
fn get(path: &Path, name: &str) -> Option<Acl> {
    let output = run(Command::new("getfattr")
        .args(["--absolute-names", "--only-values", "-n", name])
        .arg(path));
    output
        .status
        .success()
        .then(|| Acl::from_system(&output.stdout).expect("the kernel's").expect("entries"))
}

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

/// Creates a directory that all users can search; returns `None` and prints the reason if that is
/// impossible.
fn place() -> Option<tempfile::TempDir> {
    for tool in ["setfattr", "getfattr", "setpriv"] {
        if Command::new(tool).arg("--version").output().is_err() {
            println!("skipped: {tool} is not here");
            return None;
        }
    }
    let root = tempfile::tempdir_in("/dev/shm").expect("room");
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).expect("ours");
    let probe = root.path().join("probe");
    File::create(&probe).expect("room");
    if chown(&probe, Some(1000), Some(100)).is_err()
        || !set(&probe, ACCESS, &random_acl(&mut Rng::with_seed(1)))
    {
        println!("skipped: no privilege here, or no ACLs on tmpfs");
        return None;
    }
    Some(root)
}

#[test]
fn a_list_allows_what_the_kernel_allows() {
    let Some(root) = place() else { return };
    let mut rng = rng("access");
    for round in 0..40 {
        let path = root.path().join(format!("{round}"));
        File::create(&path).expect("room");
        let owner = Owner { uid: 1000, gid: 100 };
        chown(&path, Some(owner.uid), Some(owner.gid)).expect("privileged");
        let acl = random_acl(&mut rng);
        assert!(set(&path, ACCESS, &acl));
        let mode = fs::metadata(&path).expect("there").permissions().mode() as u16;
        assert_eq!(mode & 0o777, acl.mode_bits());
        assert_eq!(get(&path, ACCESS).unwrap_or_else(|| Acl::from_mode(mode)), acl_kept(&acl));
        for uid in [1000, 1001, 1003] {
            let gids: Vec<u32> =
                [100, 5, 6, 7].into_iter().filter(|_| rng.bool()).chain([8]).collect();
            let groups: Vec<String> = gids.iter().map(u32::to_string).collect();
            let script = "for p in r w x; do test -$p \"$0\" && printf $p; done; (: <>\"$0\") 2>/dev/null && printf b";
            let output = run(Command::new("setpriv")
                .args([
                    format!("--reuid={uid}"),
                    "--regid=8".into(),
                    format!("--groups={}", groups.join(",")),
                ])
                .args(["sh", "-c", script])
                .arg(&path));
            let kernel = String::from_utf8(output.stdout).expect("ASCII");
            let ours: String = [('r', 4), ('w', 2), ('x', 1), ('b', 6)]
                .into_iter()
                .filter(|(_, wanted)| {
                    acl.allows(
                        Permissions::from_bits(*wanted),
                        &Subject { uid, gids: &gids },
                        &owner,
                    )
                })
                .map(|(letter, _)| letter)
                .collect();
            assert_eq!(ours, kernel, "user {uid}, groups {gids:?}: {acl:?}");
        }
    }
}

/// Returns the list that the kernel stores when it is given `acl`. If the mode can express the
/// list, the kernel stores only the mode.
fn acl_kept(acl: &Acl) -> Acl {
    if acl.is_minimal() { Acl::from_mode(acl.mode_bits()) } else { acl.clone() }
}

#[test]
fn files_inherit_and_chmod_changes_as_in_the_kernel() {
    let Some(root) = place() else { return };
    let mut rng = rng("inheritance");
    for round in 0..40 {
        let directory = root.path().join(format!("d{round}"));
        fs::create_dir(&directory).expect("room");
        let default = random_acl(&mut rng);
        assert!(set(&directory, DEFAULT, &default));
        let path = directory.join("f");
        let asked = rng.u16(..) & 0o777;
        OpenOptions::new().write(true).create(true).mode(asked.into()).open(&path).expect("room");
        let inherited = default.inherit(asked);
        let mode = || fs::metadata(&path).expect("there").permissions().mode() as u16 & 0o777;
        assert_eq!(
            (mode(), get(&path, ACCESS)),
            (inherited.mode, inherited.access.clone()),
            "{default:?} {asked:o}"
        );
        let changed = rng.u16(..) & 0o777;
        fs::set_permissions(&path, fs::Permissions::from_mode(changed.into())).expect("ours");
        let after = inherited.access.map(|access| access.with_mode(changed));
        assert_eq!((mode(), get(&path, ACCESS)), (changed, after));
    }
}
