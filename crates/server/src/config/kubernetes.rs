//! Variables that Kubernetes sets in every container for a Service whose name begins with `railpost`: they have the
//! prefix of this server's own variables, but are ignored.

use std::net::{IpAddr, SocketAddr};

/// Whether Kubernetes sets a variable of this name, after `RAILPOST_`, to such a value. Both have to fit: a misspelt
/// variable of ours has another value, and is told so.
pub(super) fn is_service_variable(name: &str, value: &str) -> bool {
    let words: Vec<&str> = name.split('_').collect();
    match words.as_slice() {
        [.., "SERVICE", "HOST"] => value.parse::<IpAddr>().is_ok(),
        [.., "SERVICE", "PORT"] => is_port(value),
        [.., "PORT", port, protocol, "ADDR"] if is_pair(port, protocol) => {
            value.parse::<IpAddr>().is_ok()
        }
        [.., "PORT", port, protocol, "PORT"] if is_pair(port, protocol) => value == *port,
        [.., "PORT", port, protocol, "PROTO"] if is_pair(port, protocol) => {
            value == protocol.to_lowercase()
        }
        [.., "PORT", port, protocol] if is_pair(port, protocol) => {
            value.starts_with(&protocol.to_lowercase()) && link_port(value) == port.parse().ok()
        }
        [.., "PORT"] => link_port(value).is_some(),
        words => words.windows(2).any(|pair| pair == ["SERVICE", "PORT"]) && is_port(value),
    }
}

fn is_pair(port: &str, protocol: &str) -> bool {
    is_port(port) && matches!(protocol, "TCP" | "UDP" | "SCTP")
}

fn is_port(text: &str) -> bool {
    text.parse::<u16>().is_ok()
}

/// The port of a link such as `tcp://10.96.0.7:8087`.
fn link_port(text: &str) -> Option<u16> {
    let (protocol, address) = text.split_once("://")?;
    let is_protocol = matches!(protocol, "tcp" | "udp" | "sctp");
    is_protocol.then(|| address.parse::<SocketAddr>().ok().map(|address| address.port()))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kubernetes_sets_is_told_by_name_and_value() {
        let link = "tcp://10.96.0.7:8087";
        for (name, value, sets_it) in [
            ("PORT", link, true),
            ("SERVICE_HOST", "10.96.0.7", true),
            ("SERVICE_HOST", "fd00::7", true),
            ("SERVICE_PORT", "8087", true),
            ("SERVICE_PORT_HTTP", "8087", true),
            ("SERVICE_PORT_HTTP_METRICS", "8087", true),
            ("PORT_8087_TCP", link, true),
            ("PORT_8087_TCP", "tcp://[fd00::7]:8087", true),
            ("PORT_8087_TCP_ADDR", "10.96.0.7", true),
            ("PORT_8087_TCP_PORT", "8087", true),
            ("PORT_8087_TCP_PROTO", "tcp", true),
            ("PORT_8087_UDP", "udp://10.96.0.7:8087", true),
            ("POSTGRES_SERVICE_HOST", "10.96.0.8", true),
            ("SERVER_PORT", link, true),
            ("PORT", "8087", false),
            ("SERVER_PORT", "8087", false),
            ("SERVICE_HOST", "localhost", false),
            ("SERVICE_PORT", "http", false),
            ("PORT_8087_TCP", "tcp://10.96.0.7:8088", false),
            ("PORT_8087_TCP_PORT", "8088", false),
            ("PORT_8087_TCP_PROTO", "udp", false),
            ("PORT_8087_HTTP", link, false),
            ("LISTEN", "10.96.0.7", false),
            ("SERVER_LISTN", "127.0.0.1:8087", false),
        ] {
            assert_eq!(is_service_variable(name, value), sets_it, "{name}={value}");
        }
    }
}
