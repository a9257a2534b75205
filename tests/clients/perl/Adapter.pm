# What the programs of this folder have in common: they read lines, have their client send what these say, and print the
# replies (see tests/clients/check.py). Without threads nothing is shared.
package Adapter;
use strict;
use warnings;

sub answer {
    my ($call, @words) = @_;
    my $reply = eval { $call->(@words) };
    if ($@) {
        my $error = "! $@";
        $error =~ tr/\n/ /;
        return $error;
    }
    return defined $reply ? $reply : 'nil';
}

# $class is that of the client, $shared one as it comes; $holder->() makes one that can hold a lock, and gives the token.
sub serve {
    my ($class, $shared, $holder) = @_;
    $| = 1;
    print $class->VERSION, "\n";
    my $call = sub { my ($redis, $name, @words) = @_; $name = lc $name; scalar $redis->$name(@words) };
    my $held;
    while (my $line = <STDIN>) {
        chomp $line;
        $line =~ s/%/0/g;
        my ($verb, @words) = split ' ', $line;
        if ($verb eq 'width') {
            print "1\n";
        } elsif ($verb eq 'lines') {
            print answer(sub { ($held, my $token) = $holder->(); $token }), "\n";
        } else {
            print answer($call, $verb eq 'holder' ? $held : $shared, @words), "\n";
        }
    }
}

1;
