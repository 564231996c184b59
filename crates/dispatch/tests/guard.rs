//! The outbound guard against hostile targets, as one table.

use railpost_dispatch::*;

/// Every URL that must not become an endpoint's, and the words that say why.
const HOSTILE: [(&str, &str); 162] = [
    // IPv4, every special range
    ("http://0.0.0.0/", "0.0.0.0 (this network)"),
    ("http://0.1.2.3/", "0.1.2.3 (this network)"),
    ("http://10.0.0.1/", "10.0.0.1 (private)"),
    ("http://10.255.255.255/", "(private)"),
    ("http://100.64.0.1/", "(shared by carrier-grade NAT)"),
    ("http://100.100.100.200/", "(shared by carrier-grade NAT)"),
    ("http://100.127.255.255/", "(shared by carrier-grade NAT)"),
    ("http://127.0.0.1/", "127.0.0.1 (loopback)"),
    ("http://127.1.2.3/", "(loopback)"),
    ("http://127.255.255.255/", "(loopback)"),
    ("http://168.63.129.16/", "(cloud platform service)"),
    ("http://169.254.0.1/", "(link-local)"),
    ("http://169.254.169.254/latest/meta-data/", "169.254.169.254 (cloud metadata)"),
    ("http://169.254.170.2/v2/credentials", "(link-local)"),
    ("http://172.16.0.1/", "(private)"),
    ("http://172.31.255.255/", "(private)"),
    ("http://192.0.0.1/", "(protocol assignments)"),
    ("http://192.0.0.192/", "(protocol assignments)"),
    ("http://192.0.2.1/", "(documentation)"),
    ("http://192.31.196.1/", "(AS112 sink)"),
    ("http://192.52.193.1/", "(multicast tunnelling)"),
    ("http://192.88.99.1/", "(6to4 relay)"),
    ("http://192.168.0.1/", "(private)"),
    ("http://192.168.255.255/", "(private)"),
    ("http://192.175.48.1/", "(AS112 sink)"),
    ("http://198.18.0.1/", "(benchmarking)"),
    ("http://198.19.255.255/", "(benchmarking)"),
    ("http://198.51.100.1/", "(documentation)"),
    ("http://203.0.113.1/", "(documentation)"),
    ("http://224.0.0.1/", "(multicast)"),
    ("http://239.255.255.250/", "(multicast)"),
    ("http://240.0.0.1/", "(reserved)"),
    ("http://255.255.255.255/", "(reserved)"),
    // IPv4 in other clothes
    ("http://2130706433/", "127.0.0.1 (loopback)"),
    ("http://0x7f000001/", "127.0.0.1 (loopback)"),
    ("http://0x7F.0.0.1/", "127.0.0.1 (loopback)"),
    ("http://017700000001/", "127.0.0.1 (loopback)"),
    ("http://0177.0.0.01/", "127.0.0.1 (loopback)"),
    ("http://0177.0x0.0.1/", "127.0.0.1 (loopback)"),
    ("http://127.1/", "127.0.0.1 (loopback)"),
    ("http://127.0.1/", "127.0.0.1 (loopback)"),
    ("http://127.0.0.1./", "127.0.0.1 (loopback)"),
    ("http://10.1/", "10.0.0.1 (private)"),
    ("http://0/", "0.0.0.0 (this network)"),
    ("http://0x/", "0.0.0.0 (this network)"),
    ("http://2852039166/", "169.254.169.254 (cloud metadata)"),
    ("http://0xA9FEA9FE/", "169.254.169.254 (cloud metadata)"),
    ("http://0251.0376.0251.0376/", "169.254.169.254 (cloud metadata)"),
    ("http://0xa9.254.43518/", "169.254.169.254 (cloud metadata)"),
    ("http://%31%32%37.0.0.1/", "127.0.0.1 (loopback)"),
    ("http://127%2e0%2E0%2e1/", "127.0.0.1 (loopback)"),
    ("http://１２７.０.０.１/", "127.0.0.1 (loopback)"),
    ("http://127。0。0。1/", "127.0.0.1 (loopback)"),
    ("http://①②⑦.0.0.1/", "127.0.0.1 (loopback)"),
    ("http://4294967296/", "not a url"),
    ("http://256.0.0.1/", "not a url"),
    ("http://127.0.0.1.1/", "not a url"),
    ("http://1.2.3.09/", "not a url"),
    ("http://example.com.0x7f/", "not a url"),
    // IPv6, every special range
    ("http://[::]/", ":: (unspecified)"),
    ("http://[::1]/", "::1 (loopback)"),
    ("http://[0:0:0:0:0:0:0:1]/", "::1 (loopback)"),
    ("http://[100::1]/", "(discard)"),
    ("http://[100:0:0:1::1]/", "(dummy prefix)"),
    ("http://[2001::1]/", "(Teredo)"),
    ("http://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/", "(Teredo)"),
    ("http://[2001:1::1]/", "(protocol assignments)"),
    ("http://[2001:2::1]/", "(benchmarking)"),
    ("http://[2001:3::1]/", "(protocol assignments)"),
    ("http://[2001:4:112::1]/", "(protocol assignments)"),
    ("http://[2001:10::1]/", "(ORCHID)"),
    ("http://[2001:20::1]/", "(ORCHID)"),
    ("http://[2001:30::1]/", "(protocol assignments)"),
    ("http://[2001:db8::1]/", "(documentation)"),
    ("http://[3fff::1]/", "(documentation)"),
    ("http://[3fff:fff:ffff::1]/", "(documentation)"),
    ("http://[5f00::1]/", "(segment routing)"),
    ("http://[fc00::1]/", "(unique local)"),
    ("http://[fd00:ec2::254]/", "(unique local)"),
    ("http://[fd20:ce::254]/", "(unique local)"),
    ("http://[fdff:ffff:ffff::1]/", "(unique local)"),
    ("http://[fe80::1]/", "(link-local)"),
    ("http://[febf::1]/", "(link-local)"),
    ("http://[fec0::1]/", "(site-local)"),
    ("http://[feff::1]/", "(site-local)"),
    ("http://[ff02::1]/", "(multicast)"),
    ("http://[ff05::1:3]/", "(multicast)"),
    ("http://[4000::1]/", "(not global unicast)"),
    ("http://[1::1]/", "(not global unicast)"),
    // IPv6 that stands for IPv4: mapped, compatible, translated, tunnelled
    ("http://[::ffff:127.0.0.1]/", "(loopback)"),
    ("http://[::ffff:7f00:1]/", "(loopback)"),
    ("http://[0:0:0:0:0:ffff:7f00:0001]/", "(loopback)"),
    ("http://[::ffff:10.0.0.1]/", "(private)"),
    ("http://[::ffff:169.254.169.254]/", "(cloud metadata)"),
    ("http://[::ffff:a9fe:a9fe]/", "(cloud metadata)"),
    ("http://[::ffff:0.0.0.0]/", "(this network)"),
    ("http://[::ffff:255.255.255.255]/", "(reserved)"),
    ("http://[::127.0.0.1]/", "(IPv4-compatible)"),
    ("http://[::7f00:1]/", "(IPv4-compatible)"),
    ("http://[::8.8.8.8]/", "(IPv4-compatible)"),
    ("http://[::ffff:0:127.0.0.1]/", "(IPv4-translated)"),
    ("http://[::ffff:0:8.8.8.8]/", "(IPv4-translated)"),
    ("http://[64:ff9b::127.0.0.1]/", "(loopback)"),
    ("http://[64:ff9b::a00:1]/", "(private)"),
    ("http://[64:ff9b::169.254.169.254]/", "(cloud metadata)"),
    ("http://[64:ff9b:1::8.8.8.8]/", "(local NAT64)"),
    ("http://[64:ff9b:1:ffff::1]/", "(local NAT64)"),
    ("http://[64:ff9b:0:1::1]/", "(not global unicast)"),
    ("http://[2002:7f00:1::]/", "(loopback)"),
    ("http://[2002:a00:1::1]/", "(private)"),
    ("http://[2002:a9fe:a9fe::]/", "(cloud metadata)"),
    ("http://[2002:c0a8:101::1]/", "(private)"),
    // IPv6 that is none
    ("http://[fe80::1%25eth0]/", "not a url"),
    ("http://[fe80::1%eth0]/", "not a url"),
    ("http://[::1/", "not a url"),
    ("http://[]/", "not a url"),
    ("http://[127.0.0.1]/", "not a url"),
    ("http://[v1.fe80::a]/", "not a url"),
    // Names that mean something local
    ("http://localhost/", "`localhost` is a local name"),
    ("https://LOCALHOST/", "`localhost` is a local name"),
    ("http://localhost./", "`localhost` is a local name"),
    ("http://LocalHost:8080/", "`localhost` is a local name"),
    ("http://ⓛocalhost/", "`localhost` is a local name"),
    ("http://%6c%6f%63%61%6c%68%6f%73%74/", "`localhost` is a local name"),
    ("http://a.localhost/", "local name"),
    ("http://localhost.localdomain/", "local name"),
    ("http://printer.local/", "local name"),
    ("http://metadata.google.internal/", "local name"),
    ("http://metadata.google.internal./", "local name"),
    ("http://instance-data.ec2.internal/", "local name"),
    ("http://nas.lan/", "local name"),
    ("http://router.home.arpa/", "local name"),
    ("http://wiki.corp/", "local name"),
    ("http://intranet/", "local name"),
    ("http://kubernetes/", "local name"),
    ("http://kubernetes.default.svc.cluster.local/", "local name"),
    // Names that are none
    ("http://example..com/", "is no host name"),
    ("http://.example.com/", "is no host name"),
    ("http://example.com../", "is no host name"),
    ("http://exa*mple.com/", "is no host name"),
    ("http://a.b,c.com/", "is no host name"),
    ("http://exa<mple.com/", "not a url"),
    ("http://exa%00mple.com/", "not a url"),
    ("http://exa%2fmple.com/", "not a url"),
    ("http:///", "expected a url such as"),
    ("http://", "not a url"),
    // User names and passwords
    ("http://user@example.com/", "user name or password"),
    ("http://user:secret@example.com/", "user name or password"),
    ("http://:@example.com/", "user name or password"),
    ("http://@example.com/", "user name or password"),
    ("http://example.com@127.0.0.1/", "user name or password"),
    ("http://example.com:80@127.0.0.1/", "user name or password"),
    // Forms that parsers read differently
    ("http:\\\\127.0.0.1\\", "a backslash"),
    ("http://example.com\\@127.0.0.1/", "a backslash"),
    ("http://exam\tple.com/", "whitespace"),
    ("http://example.com/\r\nHost: internal", "whitespace"),
    (" http://example.com/", "whitespace"),
    ("http:example.com", "expected a url such as"),
    ("http:////example.com/", "expected a url such as"),
    // Fragments, other schemes, ports of other services
    ("https://example.com/#here", "fragment"),
    ("ftp://example.com/", "expected `https` or `http`, got `ftp`"),
    ("file:///etc/passwd", "expected a url such as"),
];

#[test]
fn no_hostile_target_gets_past_the_guard() {
    let guard = Guard::default();
    for (url, words) in HOSTILE {
        match Target::parse(url, &guard) {
            Ok(target) => panic!("{url:?} got through as {target}"),
            Err(refused) => {
                let refused = refused.to_string();
                assert!(refused.contains(words), "{url:?}: {words:?} is not in {refused:?}");
            }
        }
    }
}

#[test]
fn ports_of_other_services_are_refused() {
    let guard = Guard::default();
    for port in [0, 1, 19, 21, 22, 23, 25, 53, 110, 143, 389, 445, 465, 587, 993, 6379, 6667, 11211]
    {
        let refused = Target::parse(&format!("https://example.com:{port}/"), &guard);
        assert!(matches!(refused, Err(TargetError::Port { port: p, .. }) if p == port), "{port}");
    }
    for port in [80, 81, 443, 444, 591, 3000, 5000, 8000, 8080, 8443, 9000, 49152, 65535] {
        let target = Target::parse(&format!("https://example.com:{port}/"), &guard).unwrap();
        assert_eq!(target.port(), port);
    }
    for port in ["65536", "-1", "80a", "0x50"] {
        assert!(Target::parse(&format!("https://example.com:{port}/"), &guard).is_err(), "{port}");
    }
}

#[test]
fn an_honest_target_is_taken_in_one_normal_form() {
    for (url, normal) in [
        ("https://example.com", "https://example.com/"),
        ("https://example.com/hooks?a=1&b=%20", "https://example.com/hooks?a=1&b=%20"),
        ("HTTPS://EXAMPLE.com/Hooks", "https://example.com/Hooks"),
        ("https://example.com./hooks", "https://example.com/hooks"),
        ("https://example.com:443/", "https://example.com/"),
        ("https://example.com:/", "https://example.com/"),
        ("http://example.com:80/", "http://example.com/"),
        ("https://example.com:8443/", "https://example.com:8443/"),
        ("https://example.com/a/../b/./c", "https://example.com/b/c"),
        ("https://example.com/café", "https://example.com/caf%C3%A9"),
        ("https://bücher.example/", "https://xn--bcher-kva.example/"),
        ("https://my_host.example.com/", "https://my_host.example.com/"),
        ("https://local.example.com/", "https://local.example.com/"),
        ("https://notlocalhost.com/", "https://notlocalhost.com/"),
        ("https://8.8.8.8/", "https://8.8.8.8/"),
        ("https://134744072/", "https://8.8.8.8/"),
        ("https://[2606:4700::1111]:8443/", "https://[2606:4700::1111]:8443/"),
        ("https://[64:ff9b::808:808]/", "https://[64:ff9b::808:808]/"),
        ("https://[::ffff:8.8.8.8]/", "https://[::ffff:8.8.8.8]/"),
    ] {
        let target = Target::parse(url, &Guard::default());
        assert_eq!(target.map(|target| target.to_string()).as_deref(), Ok(normal), "{url}");
    }
}

#[test]
fn lengths_are_bounded() {
    let guard = Guard::default();
    let url = |len: usize| format!("https://example.com/{}", "a".repeat(len - 20));
    assert!(Target::parse(&url(limits::URL_LEN_MAX), &guard).is_ok());
    let too_long = limits::URL_LEN_MAX + 1;
    assert_eq!(Target::parse(&url(too_long), &guard), Err(TargetError::TooLong(too_long)));
    let label = |len: usize| format!("https://{}.com/", "a".repeat(len));
    assert!(Target::parse(&label(limits::HOST_LABEL_LEN_MAX), &guard).is_ok());
    assert!(Target::parse(&label(limits::HOST_LABEL_LEN_MAX + 1), &guard).is_err());
    let host = format!("https://{}com/", "abcdefghi.".repeat(26));
    assert!(matches!(Target::parse(&host, &guard), Err(TargetError::HostName(_))));
}

#[test]
fn plain_http_is_taken_unless_it_is_turned_off() {
    let strict = Guard::new(GuardConfig { https_only: true, ..GuardConfig::default() });
    assert_eq!(Target::parse("http://example.com/", &strict), Err(TargetError::HttpsOnly));
    assert!(Target::parse("https://example.com/", &strict).is_ok());
    assert!(Target::parse("http://example.com/", &Guard::default()).is_ok());
}

#[test]
fn a_guard_without_public_addresses_lets_requests_go_to_its_exceptions_alone() {
    let network = NamedNetwork::new("office", "10.1.0.0/16").unwrap();
    let config = GuardConfig { networks: vec![network], ..GuardConfig::default() };
    let guard = Guard::new(config).without_public();
    let public = "93.184.216.34".parse().unwrap();
    assert_eq!(guard.check(public).unwrap_err().to_string(), "93.184.216.34 (public)");
    assert!(guard.check("10.1.2.3".parse().unwrap()).is_ok());
    assert!(guard.check("10.2.2.3".parse().unwrap()).is_err());
    assert!(Target::parse("https://93.184.216.34/", &guard).is_err());
    assert!(Target::parse("https://example.com/", &guard).is_ok());
}

/// What a guard with two exceptions says of an address: `public`, an exception's name, or nothing.
#[test]
fn an_exception_opens_its_own_network_and_no_other() {
    let networks = [("office", "10.1.0.0/16"), ("mesh", "fd12:3456::/32")];
    let networks = networks.map(|(name, cidr)| NamedNetwork::new(name, cidr).unwrap());
    let guard = Guard::new(GuardConfig { networks: networks.into(), https_only: false });
    for (address, verdict) in [
        ("10.1.2.3", Some("office")),
        ("10.1.255.255", Some("office")),
        ("::ffff:10.1.2.3", Some("office")),
        ("10.2.0.0", None),
        ("10.0.255.255", None),
        ("127.0.0.1", None),
        ("169.254.169.254", None),
        ("64:ff9b::10.1.2.3", None),
        ("2002:a01:203::", None),
        ("::10.1.2.3", None),
        ("fd12:3456::1", Some("mesh")),
        ("fd12:3457::1", None),
        ("8.8.8.8", Some("public")),
        ("2606:4700::1111", Some("public")),
    ] {
        let checked = guard.check(address.parse().unwrap());
        let found = match &checked {
            Ok(Allowed::Public) => Some("public"),
            Ok(Allowed::Exception(name)) => Some(&**name),
            Err(_) => None,
        };
        assert_eq!(found, verdict, "{address}: {checked:?}");
    }
}

/// A local name may lead into an excepted network; which one it leads to shows at each connection.
#[test]
fn a_local_name_is_taken_once_some_network_is_excepted() {
    let network = NamedNetwork::new("office", "10.1.0.0/16").unwrap();
    let guard = Guard::new(GuardConfig { networks: vec![network], https_only: false });
    for url in ["http://wiki/", "http://wiki.internal/", "http://localhost/", "http://10.1.2.3/"] {
        assert!(Target::parse(url, &guard).is_ok(), "{url}");
    }
    for url in ["http://127.0.0.1/", "http://10.2.0.1/", "http://user@wiki/", "http://wiki:22/"] {
        assert!(Target::parse(url, &guard).is_err(), "{url}");
    }
}

#[test]
fn loopback_is_open_until_it_is_closed_and_then_names_its_setting() {
    let loopback = Loopback::new("the.setting", true);
    let guard = Guard::new(GuardConfig::default()).with_loopback(loopback.clone());
    let urls = ["http://127.0.0.1/", "http://[::1]:8080/", "http://localhost/"];
    for url in urls {
        assert!(Target::parse(url, &guard).is_ok(), "{url}");
    }
    assert!(Target::parse("http://10.0.0.1/", &guard).is_err());
    assert!(loopback.close());
    assert!(!loopback.close(), "it was closed already");
    for url in urls {
        let refused = Target::parse(url, &guard).unwrap_err().to_string();
        assert!(refused.contains("the.setting"), "{url}: {refused}");
    }
}
