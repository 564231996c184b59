//! The files of `deploy/`: units that systemd takes, manifests that Kubernetes and Compose take, rules that
//! Prometheus takes.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::machine::{run, target};
use crate::{promtool, python};

const UNITS: [&str; 3] = ["railpost.service", "railpost-backup.service", "railpost-backup.timer"];

/// The most that `systemd-analyze security` may say of a service, in tenths: from 0, locked up, to 100, exposed.
const EXPOSURE_MAX: &str = "15";

/// Checks everything that can be checked on this machine, and says what could not.
pub(crate) fn check() -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("xtask has no parent")?;
    let folder = target(root)?.join("deploy");
    match Command::new("systemd-analyze").arg("--version").output() {
        Ok(_) => check_units(root, &folder.join("units"))?,
        Err(error) => println!("   the systemd units are not checked: systemd-analyze: {error}"),
    }
    let checks = root.join("deploy/checks");
    let python = python::prepare(&checks.join("requirements.txt"), &folder)?;
    run(Command::new(&python).arg(checks.join("manifests.py")).arg(root.join("deploy")))?;
    promtool::check(root, &python, &folder)
}

/// Has systemd read the units, and score their hardening.
fn check_units(root: &Path, folder: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    fs::create_dir_all(folder).map_err(failed)?;
    for unit in UNITS {
        let text = fs::read_to_string(root.join("deploy/systemd").join(unit)).map_err(failed)?;
        // systemd wants the program to exist; this machine need not have it installed.
        let text = text.replace("/usr/local/bin/railpost", "/bin/true");
        fs::write(folder.join(unit), text).map_err(failed)?;
    }
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no"]).args(UNITS.map(|unit| folder.join(unit)));
    let said = verify.output().map_err(failed)?;
    let (out, err) = (String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    // It also names unknown settings, without failing.
    if !said.status.success() || !err.trim().is_empty() {
        return Err(format!("systemd-analyze verify: {out}{err}"));
    }
    for unit in UNITS.iter().filter(|unit| unit.ends_with(".service")) {
        let mut security = Command::new("systemd-analyze");
        security.args(["security", "--offline=yes", "--no-pager", "--threshold", EXPOSURE_MAX]);
        let said = security.arg(folder.join(unit)).output().map_err(failed)?;
        let text = String::from_utf8_lossy(&said.stdout);
        let score = text.lines().rfind(|line| line.contains("exposure level")).unwrap_or_default();
        println!("   {}", score.trim_start_matches(['→', ' ']));
        if !said.status.success() {
            return Err(format!("systemd-analyze security {unit}: {text}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    /// What is left of the drain when a supervisor kills the server.
    #[test]
    fn every_supervisor_waits_longer_than_the_server_drains() {
        let (default, _) = include_str!("../../crates/server/src/config/default.toml")
            .split_once("drain_timeout = \"")
            .map(|(_, rest)| rest.split_once("s\"").unwrap())
            .unwrap();
        let drain: u32 = default.parse().unwrap();
        for (text, before) in [
            (include_str!("../../deploy/systemd/railpost.service"), "TimeoutStopSec="),
            (include_str!("../../deploy/docker/compose.yaml"), "stop_grace_period: "),
            (
                include_str!("../../deploy/kubernetes/railpost.yaml"),
                "terminationGracePeriodSeconds: ",
            ),
        ] {
            let (_, rest) = text.split_once(before).unwrap();
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            assert!(digits.parse::<u32>().unwrap() > drain + 5, "{before}{digits}");
        }
    }
}
