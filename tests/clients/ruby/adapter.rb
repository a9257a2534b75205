# What the programs of this folder have in common: they read lines, have their client send what these say, and print the
# replies (see tests/clients/check.py).

HOST = ARGV[0]
PORT = ARGV[1].to_i
PROTOCOL = ARGV[2].to_i

def answer(call, words)
  reply = call.call(*words)
  reply.nil? ? 'nil' : reply.to_s
rescue StandardError => error
  "! #{error.class} #{error.message}".tr("\n", ' ')
end

# `call` is the client's way to send a command as it comes; `holder` makes a connection that can hold a lock: its way to
# send a command, and the token.
def serve(version, call, holder)
  $stdout.sync = true
  puts version
  held = nil
  $stdin.each_line(chomp: true) do |line|
    verb, rest = line.split(' ', 2)
    words = ->(number) { rest.gsub('%', number.to_s).split }
    case verb
    when 'width' then puts 8
    when 'call' then puts answer(call, words[0])
    when 'pool' then puts Array.new(8) { |number| Thread.new { answer(call, words[number]) } }.map(&:value)
    when 'lines'
      made = lambda do
        held, token = holder.call
        token
      end
      puts answer(made, [])
    when 'holder' then puts answer(held, words[0])
    end
  end
end
