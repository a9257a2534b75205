//! The names of connections (CLIENT SETNAME). A client of tether calls its connection `tether:<host>:<pid>:<program>`.

use super::reply::Map;

/// The titles of [`parts`].
pub const TITLES: [&str; 3] = ["NAME", "HOST", "PID"];

/// Program, host and pid; the name alone if it is not of that form. As `tether who` and the others show them.
pub fn of(connection: &Map) -> [String; 3] {
    parts(&connection.text("name"))
}

fn parts(name: &str) -> [String; 3] {
    let is_pid = |pid: &str| !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit());
    let decoded = || {
        let (host, rest) = name.strip_prefix("tether:")?.split_once(':')?;
        let (pid, program) = rest.split_once(':')?;
        (!host.is_empty() && is_pid(pid)).then(|| [program, host, pid].map(str::to_owned))
    };
    decoded().unwrap_or_else(|| [name.to_owned(), String::new(), String::new()])
}

#[cfg(test)]
mod tests {
    use super::parts;

    #[test]
    fn a_name_of_ours_is_program_host_and_pid() {
        assert_eq!(parts("tether:web1:42:backup"), ["backup", "web1", "42"]);
        assert_eq!(parts("tether:web1:42:a:b"), ["a:b", "web1", "42"]);
        assert_eq!(parts("tether:web1:42:"), ["", "web1", "42"]);
    }

    #[test]
    fn another_name_stays_as_it_is() {
        for name in [
            "",
            "worker",
            "web1:42:backup",
            "tether:web1:backup",
            "tether:web1:4x2:backup",
            "tether:web1::backup",
            "tether::42:backup",
        ] {
            assert_eq!(parts(name), [name, "", ""]);
        }
    }
}
