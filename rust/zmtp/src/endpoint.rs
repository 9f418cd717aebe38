//! `tcp://host:port`, the only kind of address that this client connects to.
//!
//! An [`Endpoint`] names one host that can be connected to: wildcards, which only make sense to bind, are refused
//! here rather than at the first connect. Does not resolve names.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// Longest host name that DNS can carry.
const MAX_HOST_CHARS: usize = 253;

/// A checked address. Displays as it parses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// A name or an IP address, without brackets.
    host: String,
    port: u16,
}

/// Why a text is no endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// Another transport, or none.
    #[error("endpoint must begin with tcp://: {0:?}")]
    Scheme(String),
    /// No port, or nothing before it.
    #[error("endpoint must be tcp://host:port: {0:?}")]
    Shape(String),
    /// An IPv6 address whose end cannot be told from the port.
    #[error("endpoint needs brackets around its ipv6 address: {0:?}")]
    BareIpv6(String),
    /// Neither a host name nor an IP address.
    #[error("endpoint with an invalid host: {0:?}")]
    Host(String),
    /// An address to bind, not to connect to.
    #[error("endpoint with a wildcard host cannot be connected to: {0:?}")]
    Wildcard(String),
    /// Not a number from 1 to 65535.
    #[error("endpoint port must be 1 to 65535: {0:?}")]
    Port(String),
}

impl Endpoint {
    /// Reads `tcp://name:port`, `tcp://1.2.3.4:port` or `tcp://[::1]:port`.
    ///
    /// # Errors
    /// [`EndpointError`] says which part is wrong.
    pub fn parse(text: &str) -> Result<Self, EndpointError> {
        let rest = text
            .strip_prefix("tcp://")
            .ok_or_else(|| EndpointError::Scheme(text.to_owned()))?;
        let (host, port) = rest
            .rsplit_once(':')
            .ok_or_else(|| EndpointError::Shape(text.to_owned()))?;
        if host.is_empty() {
            return Err(EndpointError::Shape(text.to_owned()));
        }
        if host.contains(':') && !host.starts_with('[') {
            return Err(EndpointError::BareIpv6(text.to_owned()));
        }
        Ok(Self {
            host: checked_host(host)?,
            port: checked_port(port)?,
        })
    }

    /// The host: a name, or an IP address without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port, never 0.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') {
            write!(f, "tcp://[{host}]:{port}")
        } else {
            write!(f, "tcp://{host}:{port}")
        }
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

fn checked_host(host: &str) -> Result<String, EndpointError> {
    let invalid = || EndpointError::Host(host.to_owned());
    let wildcard = || EndpointError::Wildcard(host.to_owned());
    if host == "*" || host == "[*]" {
        return Err(wildcard());
    }
    let address: Option<IpAddr> = if let Some(rest) = host.strip_prefix('[') {
        let inner = rest.strip_suffix(']').ok_or_else(invalid)?;
        Some(inner.parse::<Ipv6Addr>().map_err(|_| invalid())?.into())
    } else if ends_in_a_number(host) {
        // Resolvers read `0`, `1.2` or `0x7f.1` as IPv4 addresses: only the full form is unambiguous.
        Some(host.parse::<Ipv4Addr>().map_err(|_| invalid())?.into())
    } else {
        None
    };
    match address {
        Some(ip) if ip.to_canonical().is_unspecified() => Err(wildcard()),
        Some(ip) => Ok(ip.to_string()),
        None if is_host_name(host) => Ok(host.to_owned()),
        None => Err(invalid()),
    }
}

fn ends_in_a_number(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    let last = host.rsplit('.').next().unwrap_or(host);
    let hex = last
        .strip_prefix("0x")
        .or_else(|| last.strip_prefix("0X"))
        .is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    hex || (!last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit()))
}

fn is_host_name(host: &str) -> bool {
    let dotted = host.strip_suffix('.').unwrap_or(host);
    host.len() <= MAX_HOST_CHARS
        && dotted.split('.').all(|label| {
            !label.is_empty()
                && label.len() <= 63
                && label
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
        })
}

fn checked_port(port: &str) -> Result<u16, EndpointError> {
    Some(port)
        // `parse` alone would take a sign.
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
        .and_then(|text| text.parse().ok())
        .filter(|&number| number != 0)
        .ok_or_else(|| EndpointError::Port(port.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_parses_displays_the_same() {
        for (text, host, port) in [
            ("tcp://127.0.0.1:5557", "127.0.0.1", 5557),
            ("tcp://localhost:1", "localhost", 1),
            (
                "tcp://xllm-0.pods_a.svc.:65535",
                "xllm-0.pods_a.svc.",
                65535,
            ),
            ("tcp://[::1]:18000", "::1", 18000),
            ("tcp://[fe80::2]:18000", "fe80::2", 18000),
        ] {
            let endpoint = Endpoint::parse(text).unwrap();
            assert_eq!((endpoint.host(), endpoint.port()), (host, port));
            assert_eq!(endpoint.to_string(), text);
            assert_eq!(text.parse::<Endpoint>().unwrap(), endpoint);
        }
    }

    #[test]
    fn refuses_the_rest_with_a_reason() {
        type Reason = fn(String) -> EndpointError;
        let cases: [(&str, Reason); 24] = [
            ("", EndpointError::Scheme),
            ("127.0.0.1:5557", EndpointError::Scheme),
            ("ipc:///tmp/x", EndpointError::Scheme),
            ("inproc://x", EndpointError::Scheme),
            ("TCP://h:1", EndpointError::Scheme),
            ("tcp://", EndpointError::Shape),
            ("tcp://host", EndpointError::Shape),
            ("tcp://:5557", EndpointError::Shape),
            ("tcp://*:5557", EndpointError::Wildcard),
            ("tcp://[*]:5557", EndpointError::Wildcard),
            ("tcp://0.0.0.0:5557", EndpointError::Wildcard),
            ("tcp://[::]:5557", EndpointError::Wildcard),
            ("tcp://[::ffff:0.0.0.0]:5557", EndpointError::Wildcard),
            ("tcp://::1:5557", EndpointError::BareIpv6),
            ("tcp://0:5557", EndpointError::Host),
            ("tcp://0x0:5557", EndpointError::Host),
            ("tcp://1.2.3.256:5557", EndpointError::Host),
            ("tcp://[::1:5557", EndpointError::Host),
            ("tcp://user@host:5557", EndpointError::Host),
            ("tcp://a b:5557", EndpointError::Host),
            ("tcp://host:0", EndpointError::Port),
            ("tcp://host:65536", EndpointError::Port),
            ("tcp://host:+80", EndpointError::Port),
            ("tcp://host:80/", EndpointError::Port),
        ];
        for (text, reason) in cases {
            let error = Endpoint::parse(text).unwrap_err();
            assert_eq!(
                std::mem::discriminant(&error),
                std::mem::discriminant(&reason(String::new())),
                "{text}: {error}"
            );
        }
    }
}
