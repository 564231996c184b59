//! Ports that no webhook receiver listens on, and whose services may take an HTTP request for
//! commands of their own.

use std::ops::RangeInclusive;

/// What listens on `port`, if it is one of those.
pub(super) fn foreign_service(port: u16) -> Option<&'static str> {
    SERVICES.iter().find(|(ports, _)| ports.contains(&port)).map(|(_, service)| *service)
}

const SERVICES: [(RangeInclusive<u16>, &str); 33] = [
    (0..=0, "nothing"),
    (1..=19, "ancient services"),
    (20..=21, "FTP"),
    (22..=22, "SSH"),
    (23..=23, "telnet"),
    (25..=25, "SMTP"),
    (43..=43, "whois"),
    (53..=53, "DNS"),
    (69..=69, "TFTP"),
    (79..=79, "finger"),
    (110..=110, "POP3"),
    (111..=111, "RPC"),
    (113..=113, "ident"),
    (119..=119, "NNTP"),
    (123..=123, "NTP"),
    (135..=139, "NetBIOS"),
    (143..=143, "IMAP"),
    (161..=162, "SNMP"),
    (179..=179, "BGP"),
    (389..=389, "LDAP"),
    (445..=445, "SMB"),
    (465..=465, "SMTP"),
    (512..=515, "remote shells and printing"),
    (563..=563, "NNTP"),
    (587..=587, "SMTP"),
    (636..=636, "LDAP"),
    (873..=873, "rsync"),
    (993..=995, "IMAP and POP3"),
    (2049..=2049, "NFS"),
    (5060..=5061, "SIP"),
    (6379..=6379, "Redis"),
    (6665..=6669, "IRC"),
    (11211..=11211, "memcached"),
];
